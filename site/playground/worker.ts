// The Web Worker that has the database. It is a worker, because the clock of a PGlite is the Date of its realm, which the run
// replaces. A worker serves one run: the page ends it and starts another, so that nothing is left of the run before.
import { PGlite } from "@electric-sql/pglite";
import { virtualClock } from "../../src/testing/virtual-clock.ts";
import { downloads } from "./downloads.ts";
import { BEGIN, type Order, type Said } from "./messages.ts";
import { withPgClientOf } from "./pglite-client.ts";
import { simulate } from "./simulation.ts";

const say = (message: Said) => self.postMessage(message);

self.addEventListener("message", ({ data }: MessageEvent<Order>) => {
  run(data).catch((error: unknown) => {
    say({ says: "failed", message: error instanceof Error ? error.message : String(error) });
  });
});

async function run({ setup }: Order): Promise<void> {
  const began = performance.now();
  const files = await downloads((loaded, total) => say({ says: "loading", loaded, total }));
  say({ says: "starting" });
  const clock = virtualClock(new Date(BEGIN));
  const db = await PGlite.create(files);
  const started = performance.now();
  const { passes } = await simulate(setup, {
    withPgClient: withPgClientOf(db),
    begin: BEGIN,
    goTo: (ms) => void clock.advance(ms - clock.now.getTime()),
    explains: true,
    onFrame: (frame) => say({ says: "frame", frame }),
  });
  say({ says: "done", passes, startMs: started - began, runMs: performance.now() - started });
}
