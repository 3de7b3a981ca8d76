import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import type { PeerOrders, Question } from "../harness/children/peer.ts";
import { type Child, startChild } from "../harness/children.ts";
import { atEnd } from "../harness/closing.ts";
import { moment } from "../harness/moment.ts";
import { readNotes } from "./notes.ts";
import type { Seen } from "./seen.ts";

interface Hand {
  readonly child: Child;
  readonly notes: string;
  killedAt?: number;
}

export interface Crew {
  /** Starts one more worker process. */
  join(): Promise<void>;
  /** `kill -9` of the process that has been there longest. */
  killOldest(): Promise<void>;
  /** Of all processes. The runs of one that was killed have ended with it. */
  seen(): Seen[];
  stop(): Promise<void>;
}

/** Several worker processes of a system, some of which are killed. */
export function openCrew(orders: Omit<PeerOrders, "notes">): Crew {
  const folder = mkdtempSync(path.join(os.tmpdir(), "bench-crew-"));
  const removeFolder = atEnd(async () => rmSync(folder, { recursive: true }));
  const hands: Hand[] = [];
  return {
    async join() {
      const notes = path.join(folder, String(hands.length));
      const child = startChild("peer.ts", { ...orders, notes } satisfies PeerOrders);
      await child.ask<Question, object>({ ask: "start" });
      hands.push({ child, notes });
    },
    async killOldest() {
      const oldest = hands.find(({ killedAt }) => killedAt === undefined)!;
      oldest.killedAt = moment();
      await oldest.child.kill();
    },
    seen: () => hands.flatMap(seenBy),
    async stop() {
      for (const { child } of hands) await child.stop();
      await removeFolder();
    },
  };
}

function seenBy({ notes, killedAt }: Hand): Seen[] {
  const runs = readNotes(notes);
  if (killedAt === undefined) return runs;
  return runs.map((run) =>
    run.end === undefined ? { ...run, end: Math.max(killedAt, run.start), killed: true } : run,
  );
}
