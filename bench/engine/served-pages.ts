import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";
import { createUi, toNodeHandler, type Viewer } from "../../src/ui/ui.ts";
import { median } from "../harness/statistics.ts";
import { onProcessor } from "../harness/usage.ts";
import { ROUNDS } from "./crowd.ts";
import { say } from "./timing.ts";

/** The admin pages of a database, and what a look at them takes. */
export async function servePages(url: string, viewer: () => Viewer) {
  const pool = new pg.Pool({ connectionString: url, max: 1 }); // one server process, whose time on a processor is known
  let statements = 0;
  pool.on("connect", (client) => {
    const { query } = client;
    client.query = ((...args: never[]) => {
      statements += 1;
      return (query as (...given: never[]) => unknown).apply(client, args);
    }) as typeof client.query;
  });
  const server = http.createServer(toNodeHandler(createUi({ pool, authorize: viewer })));
  await once(server.listen(0, "127.0.0.1"), "listening");
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const [{ pid }] = (await pool.query("select pg_backend_pid() as pid")).rows as [{ pid: number }];

  /** How long the head of the answer took, and all of it, and how long of that the server's process and this one were on a processor. */
  async function visit(path: string) {
    const before = onProcessor(pid);
    const usage = process.cpuUsage();
    const start = performance.now();
    const answer = await fetch(base + path);
    const first = performance.now() - start;
    const text = await answer.text();
    if (answer.status !== 200) throw new Error(`${path} answers ${answer.status}: ${text}`);
    const last = performance.now() - start;
    const { user, system } = process.cpuUsage(usage);
    return { first, last, cpu: onProcessor(pid) - before + (user + system) / 1000, bytes: text.length };
  }

  return {
    base,
    statements: () => statements,
    /** Says what a look at this page takes: medians of some rounds. */
    async measure(what: string, path: string): Promise<void> {
      const visits = [];
      for (let round = 0; round < ROUNDS; round++) visits.push(await visit(path));
      say(what, {
        firstByte: inMs(median(visits.map(({ first }) => first))),
        complete: inMs(median(visits.map(({ last }) => last))),
        processor: inMs(median(visits.map(({ cpu }) => cpu))),
        longest: inMs(Math.max(...visits.map(({ last }) => last))),
        bytes: visits[0]!.bytes,
      });
    },
    async close(): Promise<void> {
      server.close();
      server.closeAllConnections();
      await pool.end();
    },
  };
}

const inMs = (value: number) => `${value.toFixed(0)} ms`;
