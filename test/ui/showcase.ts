// A database as operators meet it: three policies under load, with an hour behind them.
import { adaptiveConcurrency, concurrency, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { sharedWorld } from "../cli/world.ts";
import { silent } from "../helpers/silent.ts";

/** An hour of each policy. Jobs come in waves, and a gate denies more when they do. */
const AN_HOUR = `insert into dispatch_policy._private_minutes
  (policy_id, minute, passes, pass_seconds, last_pass_at, staged, admitted, denied, set_aside, dropped, expired, delayed, succeeded,
   failed, waits, wait_seconds, lags, lag_seconds, runs, run_seconds)
select p.id, date_trunc('minute', now()) - n * interval '1 minute', 60, 0.6, now(), w.came, w.went,
  jsonb_build_object('concurrency_full', w.came / 8, 'throttle_empty', w.came / 20), 0, 0, 0, 0, w.went - 1, 1,
  jsonb_build_object(-13, 2, -8, 5, -4, 9, -1, 20 + w.came / 9, 4, 9, 7, 5, 11, w.came / 40, 17, 2), 100,
  jsonb_build_object(-26, 5, -22, 20, -17, 9, -13, 5, -8, 2, -4, w.came / 50), 1, '{"-13": 5, "-8": 20, "-4": 9, "-1": 5, "4": 2}', 10
from dispatch_policy._private_policies p, generate_series(1, 58) n,
  lateral (select (90 + 70 * sin(n / 6.0 + p.id) + (n * 37) % 23)::int as came, (95 + 55 * sin(n / 6.0 + p.id + 0.4))::int as went) w
on conflict do nothing -- the sweep before has written a minute that has ended meanwhile`;

/** A policy with a history and a gate that learns. */
const partners = (max: number) =>
  definePolicy("call_partner", {
    context: (payload) => payload as { partner: string },
    partitionBy: "partner",
    gates: [
      concurrency({ name: "each", max }),
      adaptiveConcurrency({ name: "partners", initialMax: 8, max: 40, targetLagMs: 500, scope: "policy" }),
    ],
    history: { keep: "7 days" },
  });

/** What its gate has learnt, and what happened to its jobs: those of one partner waited for longer. */
const ITS_PAST = `
insert into dispatch_policy._private_caps (policy_id, minute, gate, scope_key, lowest, last)
select p.id, date_trunc('minute', now()) - n * interval '1 minute', 'partners', '', (12 + 9 * sin(n / 7.0))::int - 2,
  (12 + 9 * sin(n / 7.0))::int
from dispatch_policy._private_policies p, generate_series(0, 58) n where p.name = 'call_partner' and n % 5 <> 3;
insert into dispatch_policy._private_history (staged_id, policy_id, partition, task_identifier, job_id, added_at, due_at, admitted_at,
  last_admitted_at, started_at, ended_at, outcome, attempts, waited, failed_attempts, trace_id)
select 2000000000000000 + n, p.id, partner, 'call_partner', 900000 + n, at, at, at + w.seconds * interval '1 second',
  at + (w.seconds + case when n % 9 = 0 then 40 else 0 end) * interval '1 second', at + (w.seconds + 60) * interval '1 second',
  at + (w.seconds + 75) * interval '1 second', 'succeeded', case when n % 9 = 0 then 3 else 1 end,
  jsonb_build_object('concurrency_full:each', w.seconds * 0.7, 'adaptive_concurrency_full:partners', w.seconds * 0.2, 'in_line', w.seconds * 0.1),
  case when n % 9 = 0 then jsonb_build_array(
    jsonb_build_object('attempt', 1, 'started_at', at + (w.seconds + 1) * interval '1 second', 'ended_at', at + (w.seconds + 12) * interval '1 second', 'error', 'Error: 503 Service Unavailable'),
    jsonb_build_object('attempt', 2, 'started_at', at + (w.seconds + 25) * interval '1 second', 'ended_at', at + (w.seconds + 28) * interval '1 second', 'error', 'Error: socket hang up'))
    else '[]' end,
  '0af7651916cd43dd8448eb211c80319c'
from dispatch_policy._private_policies p, generate_series(0, 399) n,
  lateral (select (array['north', 'south', 'east', 'west', 'harbour', 'airport', 'station'])[1 + n % 7] as partner, now() - n * interval '8 seconds' - interval '3 minutes' as at) k,
  lateral (select case when partner = 'harbour' then 90 + n % 40 when n % 3 = 0 then 0 else n % 12 end as seconds) w
where p.name = 'call_partner'`;

export async function showcase() {
  const it = await sharedWorld();
  const { utils, pool } = it;
  const add = (identifier: string, count: number, payload: (n: number) => object, maxAttempts = 25) =>
    utils.addJobs(
      Array.from({ length: count }, (_, n) => ({ identifier, payload: payload(n), maxAttempts })),
    );
  await add("fetch_endpoint", 240, (n) => ({ endpoint: `shop-${n % 9}`, account: ["acme", "beta"][n % 2] }));
  await add("make_report", 60, (n) => ({ tenant: `tenant-${n % 7}` }));
  await utils.addJob("nightly_clean_up", {}, { queueName: "maintenance" });
  await utils.tick();
  await pool.query("select dispatch_policy._worker_alive($1, 10, $2, 'web-1', 4711, '1 hour', '0')", [
    "pool-a1",
    ["fetch_endpoint", "send_mail", "make_report"],
  ]);
  await pool.query(
    `update dispatch_policy._private_workers w set definitions = (
       select jsonb_object_agg(p.name, jsonb_build_object('version', p.version, 'hash', p.definition_hash)) from dispatch_policy._private_policies p)`,
  );
  // during a deployment: the process before has another definition
  await pool.query("select dispatch_policy._worker_alive($1, 10, $2, 'web-2', 4712, '1 hour', '0')", [
    ...["pool-b7", ["call_partner"]],
  ]);
  const declared = async (max: number) => {
    const declaring = await makePolicyUtils({ pgPool: pool, policies: [partners(max)], logger: silent });
    await declaring.release();
  };
  await declared(2);
  await pool.query(
    `update dispatch_policy._private_workers set definitions = jsonb_build_object('call_partner',
       (select jsonb_build_object('version', version, 'hash', definition_hash) from dispatch_policy._private_policies where name = 'call_partner'))
     where pool_id = 'pool-b7'`,
  );
  await declared(3);
  await pool.query("select dispatch_policy._lease('pool-a1', $1, null, '1 hour', true)", [
    ["fetch_endpoint", "send_mail", "make_report"],
  ]);
  // a pace, by which the start of the next job is estimated
  await pool.query(
    "update dispatch_policy._private_partitions set decayed_admits = 40, admitted_total = 40, decayed_at = clock_timestamp()",
  );
  const { rows } = await pool.query<{ id: string }>(
    "select job_id::text as id from dispatch_policy.in_flight_jobs where policy = 'make_report' order by job_id limit 3",
  );
  await utils.permanentlyFailJobs(
    rows.map(({ id }) => id),
    "Error: 503 Service Unavailable of the report server",
  );
  const minutes = (count: number) => new Date(Date.now() + count * 60_000);
  await utils.setLimit({
    ...{ policy: "fetch_endpoint", gate: "account", key: "acme", set: { max: 2 } },
    ...{ until: minutes(40), reason: "acme asked for less load", by: "ana" },
  });
  await utils.setLimit({
    ...{ policy: "send_mail", gate: "all", set: { rate: 20 }, reason: "a sale", by: "ana" },
  });
  await utils.clearLimit({ policy: "send_mail", gate: "all", reason: "the sale is over", by: "bo" });
  await utils.setLimit({
    ...{ policy: "send_mail", gate: "all", set: { rate: 9 } },
    ...{ from: minutes(600), until: minutes(900), reason: "newsletter", by: "bo" },
  });
  const [first] = await utils.addJobs(
    Array.from({ length: 9 }, (_, n) => ({
      identifier: "make_report",
      payload: { tenant: `tenant-${n % 7}` },
      runAt: minutes(90),
    })),
    false,
    { then: { identifier: "send_mail", payload: { to: "ana@example.org" } } },
  );
  await utils.sweep();
  await pool.query(ITS_PAST);
  await pool.query(AN_HOUR);
  const ui = createUi({
    pool,
    showPayloads: true,
    traceUrl: (traceId) => `https://traces.example.org/trace/${traceId}`,
    authorize: () => ({ name: "ana", role: "operator" }),
  });
  const [waiting] = (
    await pool.query<{ id: string }>(
      "select id::text from dispatch_policy.staged_jobs where partition = 'shop-3' order by id limit 1",
    )
  ).rows;
  const policy = "policy=fetch_endpoint";
  return {
    ui,
    pages: {
      overview: "/",
      policies: "/policies",
      policy: `/policy?${policy}`,
      "policy-partners": "/policy?policy=call_partner",
      "policy-day": `/policy?${policy}&period=24h`,
      "job-ended": "/job?id=900018",
      partitions: "/partitions",
      partition: `/partition?${policy}&partition=shop-4`,
      "partition-held": `/partition?${policy}&partition=ep4`,
      "partition-throttled": "/partition?policy=send_mail&partition=ed%40example.org",
      jobs: "/jobs",
      "jobs-failed": "/jobs?state=failed",
      job: `/job?id=${waiting?.id}`,
      limits: "/limits",
      workers: "/workers",
      audit: "/audit",
      health: "/health",
      groups: "/groups",
      group: `/group?group=${(first as { groupId?: string }).groupId}`,
      "partition-waits": "/partition?policy=call_partner&partition=harbour",
      "act-set-limit": `/act/set-limit?${policy}&gate=account&key=acme`,
      "act-set-limit-of-any": `/act/set-limit?${policy}`,
      "act-set-limit-throttle": `/act/set-limit?${policy}&gate=throttle&key=shop-4&rate=30&burst=5`,
      "act-clear-limit": `/act/clear-limit?${policy}&gate=account&key=acme`,
      "act-retry": "/act/retry?policy=make_report",
      "bulk-retry": "/bulk/retry?state=failed",
      "bulk-move": "/bulk/move?policy=fetch_endpoint&partition=shop-4",
      "act-remove": `/act/remove?${policy}&partition=shop-4`,
      nothing: "/job?id=77",
    },
    async close() {
      await utils.release();
      await it.drop();
    },
  };
}
