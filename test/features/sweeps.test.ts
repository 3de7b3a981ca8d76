// A sweep whose parts fail: each alone.
import { EventEmitter } from "node:events";
import test, { type ExecutionContext } from "ava";
import type { WorkerEvents } from "graphile-worker";
import { makeEngine } from "../../src/db/engine.ts";
import {
  type DispatchPolicyOptions,
  dispatchPolicyPreset,
  makePolicyUtils,
  policyEvents,
} from "../../src/index.ts";
import { sweepOnce } from "../../src/operate/sweep.ts";
import { concurrency, type Engine, engine } from "../helpers/engine.ts";
import { silent } from "../helpers/silent.ts";

/** A world in which the counter of the cap is wrong, and which Graphile Worker has no job of. */
async function broken(t: ExecutionContext): Promise<Engine> {
  const it = await engine(t, { gates: [concurrency(10)] });
  await it.stage(["a", "b", "c", "d", "e"]);
  await it.passes();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [await it.inFlight()]);
  await it.table("limiters").set({ in_flight: (its) => `${its} + 3` }, { kind: "ahead" });
  return it;
}

/** The function is there no more, as in the middle of an upgrade. */
function breaks(it: Engine, name: string, args: string): Promise<unknown> {
  return it.pool.query(`alter function dispatch_policy_internal.${name}(${args}) rename to _broken`);
}

function sweep(it: Engine, events: WorkerEvents = new EventEmitter()) {
  return sweepOnce({
    withPgClient: async (callback) => {
      const client = await it.pool.connect();
      try {
        return await callback(client as never);
      } finally {
        client.release();
      }
    },
    engine: makeEngine("dispatch_policy"),
    events,
    logger: silent,
    ages: { partitionInactiveAfterMs: 1e9, keepAuditForMs: 1e9, metricsRetentionMs: 6e8 },
  });
}

test("a step that fails keeps no other from being done, and is named", async (t) => {
  const it = await broken(t);
  await breaks(it, "_sweep_in_flight", "interval, boolean");
  const events: WorkerEvents = new EventEmitter();
  let told: readonly string[] = [];
  policyEvents(events).on("dispatchPolicy:sweep", ({ failed }) => {
    told = failed;
  });
  const { repaired, failed } = await sweep(it, events);
  t.is(repaired.counters, 1);
  t.is(await it.wrongCounters(), 0);
  t.deepEqual(
    failed.map(({ step }) => step),
    ["slots that nobody frees"],
  );
  t.regex(failed[0]!.error.message, /_sweep_in_flight.* does not exist/);
  t.deepEqual(told, ["slots that nobody frees"]);
});

test("an operator's sweep says what failed, once the rest is done", async (t) => {
  const it = await broken(t);
  await breaks(it, "_sweep_in_flight", "interval, boolean");
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [], logger: silent });
  // making the utils may have brought the functions back
  await it.pool.query("drop function if exists dispatch_policy_internal._sweep_in_flight(interval, boolean)");
  const error = await t.throwsAsync(utils.sweep(), { instanceOf: AggregateError });
  t.regex(
    error.message,
    /^sweep: 1 of its steps failed, the others are done: slots that nobody frees \(.*_sweep_in_flight/,
  );
  t.is(error.errors.length, 1);
  t.is(await it.wrongCounters(), 0);
});

test("a job that is gone and cannot be released holds up none of the others that are gone", async (t) => {
  const it = await broken(t);
  const [, , bad] = await it.inFlight();
  const refusal = `if old.job_id = ${bad} then raise 'it is bad'; end if`;
  await it.table("in_flight_jobs").before("delete", refusal);
  const { repaired, failed } = await sweep(it);
  t.is(repaired.jobs, 4);
  t.deepEqual(await it.inFlight(), [bad]);
  t.deepEqual(
    failed.map(({ step, error }) => `${step}: ${error.message}`),
    [`release of job ${bad}, which is gone: it is bad`],
  );
});

test("a sweep deletes audit rows older than keepAuditFor, and keeps the others", async (t) => {
  const it = await engine(t, { gates: [] });
  for (const [verb, days, count] of [
    ["old", 91, 20_001],
    ["kept", 89, 1],
    ["new", 2, 1],
  ] as const) {
    const at = () => `now() - interval '${days} days'`;
    await it.table("audit").add({ at, verb, matched: 1, changed: 1 }, count);
  }
  const verbs = async () =>
    (await it.pool.query("select verb from dispatch_policy.audit order by id")).rows.map(({ verb }) => verb);
  const sweepWith = async (options: Partial<DispatchPolicyOptions>) => {
    const preset = { extends: [dispatchPolicyPreset({ policies: [], ...options })] };
    const utils = await makePolicyUtils({ preset, pgPool: it.pool, logger: silent });
    await utils.sweep();
    await utils.release();
  };
  await sweepWith({});
  t.deepEqual(await verbs(), ["kept", "new"], "90 days by default");
  await sweepWith({ keepAuditFor: "3 days" });
  t.deepEqual(await verbs(), ["new"]);
});
