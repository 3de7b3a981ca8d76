// What the admin pages take, with 100,000 partitions, a million staged jobs and 10,000 in flight: from the request to the
// first byte and to the last, and how many statements twenty open tabs send.
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { loadavg } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { createUi, toNodeHandler } from "../../src/ui/ui.ts";
import { median } from "../harness/statistics.ts";
import { onProcessor } from "../harness/usage.ts";
import { makeCrowd, ROUNDS } from "./crowd.ts";
import { say } from "./timing.ts";

const TABS = 20;
const REFRESH_SECONDS = 5;
const WATCHED_SECONDS = 20;

const world = await makeCrowd();
await world.query("select dispatch_policy._worker_alive('pool', 1, $1, 'host', 7, '1 hour', '0')", [
  [world.task],
]);
await world.settle();

const pool = new pg.Pool({ connectionString: world.url, max: 1 }); // one server process, whose time on a processor is known
let statements = 0;
pool.on("connect", (client) => {
  const { query } = client;
  client.query = ((...args: never[]) => {
    statements += 1;
    return (query as (...given: never[]) => unknown).apply(client, args);
  }) as typeof client.query;
});
const ui = createUi({ pool, authorize: () => ({ name: "bench", role: "operator" }) });
const server = http.createServer(toNodeHandler(ui)).listen(0, "127.0.0.1");
await once(server, "listening");
const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

const [{ id }] = (await world.query(
  "select id from dispatch_policy._private_staged_jobs order by id desc limit 1",
)) as [{ id: string }];
const policy = `policy=${world.task}`;
const PATHS = [
  ...["/", "/policies", `/policy?${policy}`, "/partitions", `/partitions?${policy}&search=p3-77`],
  ...[
    "/partitions?reason=concurrency_full",
    "/partitions?sort=key",
    "/partitions?sort=most+staged",
    `/partition?${policy}&partition=p3-77`,
  ],
  ...["/jobs", "/jobs?state=staged", "/jobs?state=failed", "/jobs?key=nobody", `/job?id=${id}`],
  ...["/limits", "/workers", "/audit", "/health"],
  ...[`/act/set-limit?${policy}`, `/act/pause?${policy}`, `/act/remove?${policy}&partition=p3-77`],
];

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

const inMs = (value: number) => `${value.toFixed(0)} ms`;
console.log(`# load ${loadavg()[0]!.toFixed(1)} before`);
for (const path of PATHS) {
  const visits = [];
  for (let round = 0; round < ROUNDS; round++) visits.push(await visit(path));
  say(path, {
    firstByte: inMs(median(visits.map(({ first }) => first))),
    complete: inMs(median(visits.map(({ last }) => last))),
    processor: inMs(median(visits.map(({ cpu }) => cpu))),
    longest: inMs(Math.max(...visits.map(({ last }) => last))),
    bytes: visits[0]!.bytes,
  });
}
console.log(`# load ${loadavg()[0]!.toFixed(1)} after`);

// as live.js asks, each tab at a time of its own
for (const path of ["/", `/policy?${policy}`, "/partitions"]) {
  const before = statements;
  const until = performance.now() + WATCHED_SECONDS * 1000;
  const headers = { "cache-control": `max-age=${REFRESH_SECONDS - 1}` };
  let asked = 0;
  const tab = async (place: number) => {
    await delay((place / TABS) * REFRESH_SECONDS * 1000);
    while (performance.now() < until) {
      await (await fetch(base + path, { headers })).text();
      asked += 1;
      await delay(REFRESH_SECONDS * 1000);
    }
  };
  await Promise.all(Array.from({ length: TABS }, (_, place) => tab(place)));
  const perSecond = (count: number) => (count / WATCHED_SECONDS).toFixed(1);
  say(`${TABS} tabs of ${path}, every ${REFRESH_SECONDS} s`, {
    requestsPerSecond: perSecond(asked),
    statementsPerSecond: perSecond(statements - before),
  });
}

server.close();
server.closeAllConnections();
await pool.end();
await world.close();
