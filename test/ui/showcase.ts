// A database as operators meet it: three policies under load, with an hour behind them.
import { createUi } from "../../src/ui/ui.ts";
import { sharedWorld } from "../cli/world.ts";

/** An hour of each policy. Jobs come in waves, and a gate denies more when they do. */
const AN_HOUR = `insert into dispatch_policy._private_minutes
  (policy_id, minute, passes, pass_seconds, last_pass_at, staged, admitted, denied, set_aside, dropped, expired, succeeded,
   failed, waits, wait_seconds, lags, lag_seconds, runs, run_seconds)
select p.id, date_trunc('minute', now()) - n * interval '1 minute', 60, 0.6, now(), w.came, w.went,
  jsonb_build_object('concurrency_full', w.came / 8, 'throttle_empty', w.came / 20), 0, 0, 0, w.went - 1, 1,
  array[0, 0, 0, 0, 2, 5, 9, 20 + w.came / 9, 9, 5, w.came / 40, 2, 0, 0, 0, 0, 0, 0], 100,
  array[0, 5, 20, 9, 5, 2, w.came / 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1,
  array[0, 0, 0, 0, 5, 20, 9, 5, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0], 10
from dispatch_policy._private_policies p, generate_series(1, 58) n,
  lateral (select (90 + 70 * sin(n / 6.0 + p.id) + (n * 37) % 23)::int as came, (95 + 55 * sin(n / 6.0 + p.id + 0.4))::int as went) w`;

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
       select jsonb_object_agg(p.name, jsonb_build_object('version', p.version, 'hash', 'h')) from dispatch_policy._private_policies p)`,
  );
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
    ...{ policy: "send_mail", gate: "all", set: { rate: 9 } },
    ...{ from: minutes(600), until: minutes(900), reason: "newsletter", by: "bo" },
  });
  await utils.sweep();
  await pool.query(AN_HOUR);
  const ui = createUi({
    pool,
    showPayloads: true,
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
      "act-set-limit": `/act/set-limit?${policy}&gate=account&key=acme`,
      "act-remove": `/act/remove?${policy}&partition=shop-4`,
      nothing: "/job?id=77",
    },
    async close() {
      await utils.release();
      await it.drop();
    },
  };
}
