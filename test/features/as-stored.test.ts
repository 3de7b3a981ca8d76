// A payload is judged as its job will get it: schema, context and keys see what JSON stores, however a job is added.
import test, { type ExecutionContext } from "ava";
import type { JobHelpers } from "graphile-worker";
import { z } from "zod";
import {
  type AnyPolicy,
  addJobAdhoc,
  addPolicyJob,
  addPolicyJobs,
  concurrency,
  definePolicy,
  makePolicyUtils,
  PayloadError,
} from "../../src/index.ts";
import { runDueJobs } from "../../src/testing.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

/** Schemas that only live values pass. */
const LIVE = {
  a_date: [z.object({ key: z.string(), live: z.date() }), { key: "k", live: new Date() }],
  a_url: [
    z.object({ key: z.string(), live: z.instanceof(URL) }),
    { key: "k", live: new URL(import.meta.url) },
  ],
  bytes: [
    z.object({ key: z.string(), live: z.instanceof(Uint8Array) }),
    { key: "k", live: new Uint8Array(2) },
  ],
  not_a_number: [z.object({ key: z.string(), live: z.nan() }), { key: "k", live: Number.NaN }],
  a_symbol: [z.object({ key: z.string(), live: z.symbol() }), { key: "k", live: Symbol("x") }],
  minus_zero: [
    z.object({ key: z.string(), live: z.custom((value) => Object.is(value, -0)) }),
    { key: "k", live: -0 },
  ],
  a_class: [z.object({ key: z.string(), live: z.instanceof(RegExp) }), { key: "k", live: /x/ }],
} as const;
const policies = Object.entries(LIVE).map(([name, [payload]]) =>
  definePolicy(name, { payload: payload as z.ZodType<object>, context: () => ({}), partitionBy: () => "k" }),
);
const REFUSED = {
  instanceOf: PayloadError,
  message: /^policy "\w+": the payload, as JSON stores it, fails its schema: live: /,
};

async function world(t: ExecutionContext, its: readonly AnyPolicy[] = policies) {
  const { pool, url } = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: its, logger: silent });
  t.teardown(() => utils.release());
  return { pool, url, utils };
}

for (const policy of policies)
  test(`a schema that only live values pass is refused when the job is added: ${policy.identifier}`, async (t) => {
    const { pool, url, utils } = await world(t);
    const { identifier } = policy;
    const [, payload] = LIVE[identifier as keyof typeof LIVE];
    const plain = definePolicy("plain", { partitionBy: "key" });
    const adds = {
      addPolicyJob: () => addPolicyJob(pool, policy, payload),
      addPolicyJobs: () => addPolicyJobs(pool, [{ policy, payload }]),
      then: () =>
        addPolicyJobs(pool, [{ policy: plain, payload: { key: "k" } }], { then: { policy, payload } }),
      "utils.addJob": () => utils.addJob(identifier, payload),
      "utils.addJobs": () => utils.addJobs([{ identifier, payload }]),
      addJobAdhoc: () =>
        addJobAdhoc({ connectionString: url, policies, logger: silent }, identifier, payload),
    };
    for (const [call, add] of Object.entries(adds)) {
      const error = await t.throwsAsync(add(), REFUSED, call);
      t.deepEqual(
        (error as PayloadError).issues.map(({ path }) => path),
        [["live"]],
      );
    }
    t.deepEqual((await pool.query("select id from dispatch_policy.staged_jobs")).rows, []);
  });

test("a task that adds such a job is refused as well, and so is one of the testing kit", async (t) => {
  const errors: unknown[] = [];
  const parent = definePolicy("parent", { partitionBy: "key" });
  const task = async (_payload: unknown, helpers: JobHelpers) => {
    const [, payload] = LIVE.a_date;
    errors.push(await helpers.addJob("a_date", payload as never).catch((error) => error));
    errors.push(await helpers.addJobs([{ identifier: "a_date", payload }]).catch((error) => error));
  };
  const worker = await startWorker(t, { policies: [parent, ...policies], tasks: { parent: task } });
  await worker.utils.addJob("parent", { key: "k" });
  await until("both have failed", () => errors.length === 2);
  const { pool, utils } = await world(t, [parent, ...policies]);
  await utils.addJob("parent", { key: "k" });
  await runDueJobs({ pgPool: pool, policies: [parent, ...policies], taskList: { parent: task } });
  t.is(errors.length, 4);
  for (const error of errors)
    t.throws(() => {
      throw error;
    }, REFUSED);
});

test("context, keys and the task see the same values, as JSON stores them", async (t) => {
  const seen: unknown[] = [];
  const at = new Date(0);
  const payload = {
    key: at,
    none: undefined,
    list: [undefined, Number.NaN],
    inner: { toJSON: () => ({ a: 1 }) },
  };
  const stored = { key: at.toISOString(), list: [null, null], inner: { a: 1 } };
  const byFunction = definePolicy("by_function", {
    context: (given) => {
      seen.push(given);
      return { key: (given as typeof stored).key };
    },
    partitionBy: (ctx) => ctx.key,
    gates: [concurrency({ max: 5 })],
  });
  const byPath = definePolicy("by_path", { partitionBy: ["key", "inner.a"] });
  const run = async (given: unknown) => void seen.push(given);
  const its = [byFunction, byPath];
  const worker = await startWorker(t, { policies: its, tasks: { by_function: run, by_path: run } });
  await worker.utils.pause({ all: true });
  const added = await addPolicyJob(worker.pool, byFunction, payload);
  t.is(added.partition, stored.key);
  const inJs = await addPolicyJob(worker.pool, byPath, payload);
  const { rows } = await worker.pool.query("select partition from dispatch_policy.add_job('by_path', $1)", [
    JSON.stringify(payload),
  ]);
  t.is(inJs.partition, rows[0].partition);
  await worker.utils.resume({ all: true });
  await worker.sees("job:success", 3);
  t.true(seen.length >= 4, "context of one at least, and three runs");
  for (const one of seen) t.deepEqual(one, stored);
});

test("without a payload, a schema judges the empty object that is stored", async (t) => {
  const nothing = definePolicy("nothing", {
    payload: z.undefined(),
    context: () => ({}),
    partitionBy: () => "k",
  });
  const anything = definePolicy("anything", {
    payload: z.object({}),
    context: () => ({}),
    partitionBy: () => "k",
  });
  const { pool } = await world(t, [nothing, anything]);
  await t.throwsAsync(addPolicyJob(pool, nothing, undefined), { instanceOf: PayloadError });
  t.true((await addPolicyJob(pool, anything, undefined as never)).staged);
});
