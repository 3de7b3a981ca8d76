import { once } from "node:events";
import http from "node:http";
import { text } from "node:stream/consumers";
import pg from "pg";
import { listen } from "../../scripts/listen.ts";
import { createUi, toNodeHandler } from "../../src/ui/ui.ts";
import { type Measures, measure } from "./measure.ts";
import { FIGURES, TITLES } from "./report.ts";
import { type Mode, runStorm, type World, withWorld } from "./run.ts";
import { MOST, makeStorm } from "./storm.ts";

export interface Serving {
  readonly endpoints: number;
  readonly loudest: number;
  /** On this machine only; 0: any that is free. */
  readonly port: number;
  /** How long a storm may take. */
  readonly mostSeconds: number;
  readonly signal: AbortSignal;
}

/** A storm that somebody has started. */
interface Started {
  readonly title: string;
  /** How it stood at the last look. */
  progress: string;
  /** Undefined while it runs. */
  ended?: Measures | string;
}

const ADMIN = "/admin";

/** A page that starts storms, and the admin pages of the database in which they run. Ends with the signal. */
export function serveStorms({ signal, ...serving }: Serving): Promise<void> {
  return withWorld("governed", signal, async (world) => {
    const pool = new pg.Pool({ connectionString: world.url, max: 4 });
    pool.on("error", console.error);
    const pages = toNodeHandler(
      createUi({ pool, basePath: ADMIN, authorize: () => ({ name: "you", role: "operator" }) }),
    );
    const storms = makeStorms(world, serving, signal);
    const server = http.createServer(async (request, response) => {
      const path = (request.url ?? "/").replace(/\?.*/, "");
      if (path === ADMIN || path.startsWith(`${ADMIN}/`)) return pages(request, response);
      if (path !== "/") return void response.writeHead(404).end();
      if (request.method === "POST") {
        // a page of another site must not start storms
        if (request.headers.origin !== `http://${request.headers.host}`)
          return void response.writeHead(403).end();
        storms.start(new URLSearchParams(await text(request)));
        return void response.writeHead(303, { location: "/" }).end();
      }
      response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(storms.page());
    });
    const origin = await listen(server, serving.port);
    console.log(`Storms:      ${origin}/`);
    console.log(`Admin pages: ${origin}${ADMIN}/`);
    console.log("Ctrl-C ends it.");
    if (!signal.aborted) await once(signal, "abort");
    server.close();
    server.closeAllConnections();
    await storms.ended();
    await pool.end();
  });
}

/** The storms that were started, one at a time. */
function makeStorms(world: World, { mostSeconds, ...size }: Omit<Serving, "signal">, signal: AbortSignal) {
  const started: Started[] = [];
  let running: Promise<void> | null = null;
  let seconds = 5;

  async function run(mode: Mode, asked: { endpoints: number; loudest: number }): Promise<void> {
    const storm = makeStorm(asked.endpoints, asked.loudest);
    const it: Started = {
      title: `${TITLES[mode]}, ${storm.length} endpoints, the loudest with ${asked.loudest} jobs`,
      progress: "It runs.",
    };
    const onProgress = (progress: string) => {
      it.progress = progress;
    };
    started.unshift(it);
    try {
      const outcome =
        mode === "governed"
          ? await world.run(storm, mostSeconds, onProgress)
          : await runStorm("plain", storm, seconds, signal, onProgress); // as long as the last one took with the policy
      if (mode === "governed") seconds = Math.max(outcome.seconds, 5);
      it.ended = measure(outcome);
    } catch (error) {
      it.ended = `It has failed: ${(error as Error).message}`;
    }
  }

  return {
    /** Nothing happens while one runs: two would share the worker slots, and their figures would say nothing. */
    start(form: URLSearchParams): void {
      if (running) return;
      const mode = form.get("mode") === "plain" ? "plain" : "governed";
      const asked = {
        endpoints: between(form.get("endpoints"), 1, MOST.endpoints, size.endpoints),
        loudest: between(form.get("loudest"), 1, MOST.loudest, size.loudest),
      };
      running = run(mode, asked).finally(() => {
        running = null;
      });
    },
    page: (): string => pageOf(started, running !== null, size),
    ended: async (): Promise<void> => void (await running),
  };
}

function between(text: string | null, least: number, most: number, otherwise: number): number {
  const number = Math.round(Number(text ?? Number.NaN));
  return Number.isFinite(number) ? Math.min(Math.max(number, least), most) : otherwise;
}

function pageOf(
  started: readonly Started[],
  isRunning: boolean,
  { endpoints, loudest }: { endpoints: number; loudest: number },
): string {
  const number = (name: string, label: string, value: number) =>
    `<label>${label} <input name="${name}" type="number" value="${value}" min="1"></label>`;
  const button = (mode: Mode, label: string) =>
    `<button name="mode" value="${mode}"${isRunning ? " disabled" : ""}>${label}</button>`;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Storms</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
${isRunning ? '<meta http-equiv="refresh" content="2">' : ""}
<style>
:root { color-scheme: light dark } body { font: 1rem/1.5 system-ui; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
form { display: flex; flex-wrap: wrap; gap: 1rem; align-items: end } input { width: 6rem } td { text-align: right }
th { text-align: left; font-weight: normal; padding-right: 2rem } caption { text-align: left; font-weight: bold; margin-top: 2rem; white-space: nowrap }
</style></head><body>
<h1>Storms</h1>
<p>Each endpoint allows 10 requests per second and 5 at once, and its server counts what is too much. Two worker processes
with 50 slots each send the requests. <a href="${ADMIN}/">The admin pages</a> show what waits, and why.</p>
<p>Plain Graphile Worker runs the same tasks in a database of its own, with the same processes and slots, for as long as the
last storm took with the policy. It has no limit by key to set. A job that was refused comes back after its back-off.</p>
<form method="post">${number("endpoints", "Endpoints", endpoints)}${number("loudest", "Jobs of the loudest", loudest)}
${button("governed", "Start with the policy")}${button("plain", "Start on plain Graphile Worker")}</form>
${started.map(tableOf).join("\n")}
</body></html>`;
}

function tableOf({ title, progress, ended }: Started): string {
  const caption = `<caption>${title[0]?.toUpperCase()}${title.slice(1)}</caption>`;
  if (ended === undefined) return `<table>${caption}<tr><th>${escaped(progress)}</th></tr></table>`;
  if (typeof ended === "string") return `<table>${caption}<tr><th>${escaped(ended)}</th></tr></table>`;
  const rows = FIGURES.map(
    ([label, of]) => `<tr><th>${escaped(label.trim())}</th><td>${escaped(of(ended))}</td></tr>`,
  );
  return `<table>${caption}${rows.join("")}</table>`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
