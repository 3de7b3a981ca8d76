// What the admin pages take, with 100,000 partitions, a million staged jobs and 10,000 in flight: from the request to the
// first byte and to the last, and how many statements twenty open tabs send. Behind the policy lie a week by minutes, 20,000
// ended jobs, and 5,000 calls in the audit: half of them set a limit that is in force. A group of 1,000 jobs is open.
import { loadavg } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { ACTION_PAGES } from "../../src/ui/pages/action.ts";
import { BULK_PAGES } from "../../src/ui/pages/bulk.ts";
import { PAGES } from "../../src/ui/pages/pages.ts";
import type { Viewer } from "../../src/ui/ui.ts";
import { makeCrowd } from "./crowd.ts";
import { servePages } from "./served-pages.ts";
import { say } from "./timing.ts";
import { jobsOf, keys } from "./world.ts";

const TABS = 20;
const REFRESH_SECONDS = 5;
const WATCHED_SECONDS = 20;

const TASK = "bench";
const policy = `policy=${TASK}`;
const partition = `${policy}&partition=p0-77`;

/** Each page, and each form, with something on it. `id` is of a staged job, `group` of an open group. */
const pathsOf = (id: string, group: string): readonly string[] => [
  ...["/", "/?period=7d", "/policies", `/policy?${policy}`, `/policy?${policy}&period=7d`],
  ...["/partitions", "/partitions?search=p0-77", "/partitions?reason=concurrency_full"],
  ...["/partitions?sort=key", "/partitions?sort=most+admitted", "/partitions?state=with+jobs+in+flight"],
  ...["/search?q=p0-77", "/search?q=nothing+like+it"],
  ...[`/partition?${partition}`, `/partition?${policy}&partition=p0-7&period=24h`],
  ...["/jobs", "/jobs?state=staged", "/jobs?state=failed", "/jobs?key=nobody", `/jobs?${partition}`],
  ...[`/job?id=${id}`, "/job?id=900000007", "/groups", `/group?group=${group}`],
  ...["/limits", "/limits?before=2500", "/workers", "/audit", "/audit?by=bench", "/health"],
  ...[`/act/set-limit?${policy}`, `/act/set-limit?${policy}&gate=own&key=p0-77&max=2`],
  `/act/set-limit?${policy}&gate=own&where=${encodeURIComponent('{"key": "p0-77"}')}&max=2`,
  ...[`/act/clear-limit?${policy}&gate=own&key=p0-77`, `/act/pause?${policy}`, `/act/pause?${partition}`],
  ...[`/act/resume?${policy}`, `/act/hold?${partition}`, `/act/admit?${policy}`, `/act/move?${partition}`],
  ...[`/act/retry?${partition}`, `/act/remove?${partition}`, `/act/cancel?${partition}`],
  `/act/release-slots?ids=${id}`,
  ...[`/bulk/retry?${policy}`, `/bulk/remove?${policy}`, `/bulk/cancel?${policy}`, `/bulk/move?${partition}`],
];
const visited = new Set(pathsOf("1", "1").map((path) => path.split("?")[0]));
const forgotten = Object.keys({ ...PAGES, ...ACTION_PAGES, ...BULK_PAGES }).filter(
  (path) => !visited.has(path),
);
if (forgotten.length > 0) throw new Error(`no figure is taken of ${forgotten.join(", ")}`);

/** What lies behind a policy that has run for a week. */
const PAST = [
  `insert into dispatch_policy_internal.history (staged_id, policy_id, partition, task_identifier, job_id, added_at, due_at,
     admitted_at, last_admitted_at, started_at, ended_at, outcome, attempts, waited)
   select 5000000000000000 + n, p.id, 'p0-' || n % 1000, p.name, 900000000 + n, t.at, t.at, t.at + w.length, t.at + w.length,
     t.at + w.length, t.at + w.length + interval '1 second', 'succeeded', 1,
     jsonb_build_object('concurrency_full:own', extract(epoch from w.length) / 2, 'concurrency_full:all', extract(epoch from w.length) / 2)
   from dispatch_policy_internal.policies p, generate_series(1, 20000) n,
     lateral (select now() - n * interval '170 milliseconds' - interval '40 seconds' as at) t,
     lateral (select n % 37 * interval '1 second' as length) w`,
  `insert into dispatch_policy_internal.minutes
     (policy_id, minute, passes, pass_seconds, last_pass_at, staged, admitted, denied, quarantined, dropped, expired, delayed,
      succeeded, failed, waits, wait_seconds, lags, lag_seconds, runs, run_seconds)
   select p.id, date_trunc('minute', now()) - n * interval '1 minute', 60, 0.6, now(), 900, 890, '{"concurrency_full": 500}', 0, 0, 0, 0,
     880, 9, b.counts, 100, b.counts, 1, b.counts, 10
   from dispatch_policy_internal.policies p, generate_series(1, 7 * 24 * 60) n,
     lateral (select jsonb_object_agg(i, 40) as counts from generate_series(-30, -20) i) b`,
  `insert into dispatch_policy_internal.audit (at, verb, policy, gate, scope_key, detail, reason, by, matched, changed)
   select now() - interval '2 days' + n * interval '10 seconds', case when n <= 2500 and n % 2 = 0 then 'clear_limit' else 'set_limit' end,
     p.name, 'own', 'p0-' || (n - 1) / case when n <= 2500 then 2 else 1 end,
     case when n <= 2500 and n % 2 = 0 then '{}'::jsonb else '{"set": {"max": 2}}' end, 'bench', 'bench', 1, 1
   from dispatch_policy_internal.policies p, generate_series(1, 5000) n order by n`,
];

const world = await makeCrowd(undefined, { history: true });
await world.query("select dispatch_policy_internal._worker_alive('pool', 1, $1, 'host', 7, '1 hour', '0')", [
  [TASK],
]);
for (const statement of PAST) await world.query(statement);
const then = JSON.stringify({ policy: TASK, identifier: TASK, payload: { key: "then" } });
await world.query("select count(*) from dispatch_policy.enqueue_group($1, 'replace', null, $2)", [
  ...[world.batches(jobsOf(keys(1000, "p0-"))), then],
]);
await world.routeAll();
await world.settle();
for (const table of ["history", "minutes", "audit", "group_jobs"])
  await world.query(`vacuum analyze dispatch_policy_internal.${table}`);

let viewer: Viewer = { name: "bench", role: "operator" };
const pages = await servePages(world.url, () => viewer);
const { measure } = pages;

const [{ id }] = (await world.query(
  "select id from dispatch_policy_internal.staged_jobs order by id desc limit 1",
)) as [{ id: string }];
const [{ id: group }] = (await world.query("select id::text from dispatch_policy.groups limit 1")) as [
  { id: string },
];
/** A customer's pages, by the keys of their partitions and by their context. */
const TENANTS: readonly Viewer[] = [
  { name: "by key", role: "tenant", partitions: { [TASK]: ["p0-77", "p0-78"] } },
  { name: "by context", role: "tenant", where: { [TASK]: { key: "p0-77" } } },
];
const TENANT_PATHS = ["/", `/partition?${partition}`];

console.log(`# load ${loadavg()[0]!.toFixed(1)} before`);
for (const path of pathsOf(id, group)) await measure(path, path);
const operator = viewer;
for (const tenant of TENANTS) {
  viewer = tenant;
  for (const path of TENANT_PATHS) await measure(`${path}, a tenant ${tenant.name}`, path);
}
viewer = operator;
console.log(`# load ${loadavg()[0]!.toFixed(1)} after`);

// as live.js asks, each tab at a time of its own
for (const path of ["/", `/policy?${policy}`, "/partitions"]) {
  const before = pages.statements();
  const until = performance.now() + WATCHED_SECONDS * 1000;
  const headers = { "cache-control": `max-age=${REFRESH_SECONDS - 1}` };
  let asked = 0;
  const tab = async (place: number) => {
    await delay((place / TABS) * REFRESH_SECONDS * 1000);
    while (performance.now() < until) {
      await (await fetch(pages.base + path, { headers })).text();
      asked += 1;
      await delay(REFRESH_SECONDS * 1000);
    }
  };
  await Promise.all(Array.from({ length: TABS }, (_, place) => tab(place)));
  const perSecond = (count: number) => (count / WATCHED_SECONDS).toFixed(1);
  say(`${TABS} tabs of ${path}, every ${REFRESH_SECONDS} s`, {
    requestsPerSecond: perSecond(asked),
    statementsPerSecond: perSecond(pages.statements() - before),
  });
}

await pages.close();
await world.close();
