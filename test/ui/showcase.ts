// A database as operators meet it: three policies under load, with an hour behind them.
import type pg from "pg";
import { adaptiveConcurrency, concurrency, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { sharedWorld } from "../cli/world.ts";
import { QUIET_MINUTE } from "../helpers/minutes.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";

/** An hour of each policy./** An hour of each policy. Jobs come in waves, and a gate denies more when they do. */
async function addHour(pool: pg.Pool): Promise<void> {
  const minutes = table(pool, "minutes");
  await minutes.remove({ minute: (its) => `${its} > '-infinity'` }); // the sweep has written those that have ended
  for (const { id } of await table(pool, "policies").all()) {
    const came = `(90 + 70 * sin(n / 6.0 + ${id}) + (n * 37) % 23)::int`;
    const went = `(95 + 55 * sin(n / 6.0 + ${id} + 0.4))::int`;
    const counts = (list: string) => () => `jsonb_build_object(${list})`;
    await minutes.add(
      {
        ...{ ...QUIET_MINUTE, policy_id: id, passes: 60, pass_seconds: 0.6, last_pass_at: () => "now()" },
        minute: () => "date_trunc('minute', now()) - n * interval '1 minute'",
        ...{ staged: () => came, admitted: () => went, succeeded: () => `${went} - 1`, failed: 1 },
        denied: counts(`'concurrency_full', ${came} / 8, 'throttle_empty', ${came} / 20`),
        waits: counts(`-13, 2, -8, 5, -4, 9, -1, 20 + ${came} / 9, 4, 9, 7, 5, 11, ${came} / 40, 17, 2`),
        lags: counts(`-26, 5, -22, 20, -17, 9, -13, 5, -8, 2, -4, ${came} / 50`),
        runs: { "-13": 5, "-8": 20, "-4": 9, "-1": 5, "4": 2 },
        ...{ wait_seconds: 100, lag_seconds: 1, run_seconds: 10 },
      },
      58,
    );
  }
}

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

const PARTNERS = ["north", "south", "east", "west", "harbour", "airport", "station"];

/** What its gate has learnt, and what happened to its jobs: those of one partner waited for longer. */
async function addItsPast(pool: pg.Pool): Promise<void> {
  const { id: policy_id } = await table(pool, "policies").one({ name: "call_partner" });
  const now = Date.now();
  for (let n = 0; n < 59; n++) {
    if (n % 5 === 3) continue;
    const last = Math.round(12 + 9 * Math.sin(n / 7));
    const at = new Date(Math.floor(now / 60_000 - n) * 60_000);
    const caps = [last - 2, last].map((cap) => ({ gate: "partners", key: "", cap }));
    await table(pool, "activity").add({ policy_id, at, caps: JSON.stringify(caps) });
  }
  await pool.query("select dispatch_policy_internal._fold_activity(1000)");
  for (let n = 0; n < 400; n++) {
    const partition = PARTNERS[n % 7];
    const seconds = partition === "harbour" ? 90 + (n % 40) : n % 3 === 0 ? 0 : n % 12;
    const at = (after: number) => new Date(now + (after - n * 8 - 180) * 1000);
    const failed = [
      {
        attempt: 1,
        started_at: at(seconds + 1),
        ended_at: at(seconds + 12),
        error: "Error: 503 Service Unavailable",
      },
      {
        attempt: 2,
        started_at: at(seconds + 25),
        ended_at: at(seconds + 28),
        error: "Error: socket hang up",
      },
    ];
    const isTried = n % 9 === 0;
    await table(pool, "history").add({
      ...{ staged_id: 2_000_000_000_000_000 + n, policy_id, partition, job_id: 900_000 + n },
      ...{ task_identifier: "call_partner", added_at: at(0), due_at: at(0), admitted_at: at(seconds) },
      ...{ last_admitted_at: at(seconds + (isTried ? 40 : 0)), started_at: at(seconds + 60) },
      ...{ ended_at: at(seconds + 75), outcome: "succeeded", attempts: isTried ? 3 : 1 },
      waited: {
        "concurrency_full:each": seconds * 0.7,
        "adaptive_concurrency_full:partners": seconds * 0.2,
        in_line: seconds * 0.1,
      },
      failed_attempts: JSON.stringify(isTried ? failed : []),
      trace_id: "0af7651916cd43dd8448eb211c80319c",
    });
  }
}

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
  await pool.query(
    "select dispatch_policy_internal._worker_alive($1, 10, $2, 'web-1', 4711, '1 hour', '0')",
    ["pool-a1", ["fetch_endpoint", "send_mail", "make_report"]],
  );
  const definitionsOf = async (where = {}) => {
    const policies = await table(pool, "policies").all(where);
    return Object.fromEntries(
      policies.map(({ name, version, definition_hash: hash }) => [name, { version, hash }]),
    );
  };
  await table(pool, "workers").set({ definitions: await definitionsOf() });
  // during a deployment: the process before has another definition
  await pool.query(
    "select dispatch_policy_internal._worker_alive($1, 10, $2, 'web-2', 4712, '1 hour', '0')",
    [...["pool-b7", ["call_partner"]]],
  );
  const declared = async (max: number) => {
    const declaring = await makePolicyUtils({ pgPool: pool, policies: [partners(max)], logger: silent });
    await declaring.release();
  };
  await declared(2);
  const definitions = await definitionsOf({ name: "call_partner" });
  await table(pool, "workers").set({ definitions }, { pool_id: "pool-b7" });
  await declared(3);
  await pool.query("select dispatch_policy_internal._lease('pool-a1', $1, null, '1 hour', true)", [
    ["fetch_endpoint", "send_mail", "make_report"],
  ]);
  await pool.query(
    "select dispatch_policy_internal._worker_alive($1, 10, $2, 'web-3', 4713, '1 minute', '0')",
    [...["pool-c2", ["fetch_endpoint"]]],
  );
  const earlier = () => "now() - interval '2 hours'";
  const dead = {
    started_at: earlier,
    heartbeat_at: earlier,
    stale_at: earlier,
    buried_at: earlier,
    unlocked: 7,
    used_up: 1,
  };
  await table(pool, "workers").set(dead, { pool_id: "pool-c2" });
  // a pace, by which the start of the next job is estimated
  const decayed_at = () => "clock_timestamp()";
  await table(pool, "partitions").set({ decayed_admits: 40, admitted_total: 40, decayed_at });
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
  await addItsPast(pool);
  await addHour(pool);
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
