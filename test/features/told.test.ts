// Wrong calls and wrong set-ups are told of: what is wrong, what was expected, and the way out.
import test, { type ExecutionContext } from "ava";
import {
  ArgumentError,
  addJobAdhoc,
  addPolicyJob,
  addPolicyJobs,
  makePolicyUtils,
  PayloadError,
  runTickLoop,
  wrapTaskList,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { greet } from "../helpers/policies.ts";
import { silent } from "../helpers/silent.ts";

// biome-ignore lint/suspicious/noExplicitAny: calls that the types refuse
const untyped = (run: (...args: any[]) => Promise<unknown>) => run;

const CLIENT =
  "a Pool, Client or PoolClient of pg, or an adapter with query\\(text, values\\); the policy comes after it";

for (const [what, client, got] of [
  ["undefined", undefined, `client is missing: it must be ${CLIENT}$`],
  ["null", null, `client must be ${CLIENT}, got null$`],
  ["a policy", greet, `client must be ${CLIENT}, got the policy "greet"$`],
  [
    "a connection string, which may have a password",
    "postgres://ana:secret@db/app",
    `client must be ${CLIENT}, got a string: for a connection string, make a pool of it$`,
  ],
  ["utils", { addJob: () => {} }, `client must be ${CLIENT}, got an object$`],
] as const) {
  test(`a client that is ${what}`, async (t) => {
    const job = { policy: greet, payload: { name: "Ana" } };
    await t.throwsAsync(untyped(addPolicyJob)(client, greet, job.payload), {
      instanceOf: ArgumentError,
      message: new RegExp(`^addPolicyJob: ${got}`),
    });
    await t.throwsAsync(untyped(addPolicyJobs)(client, [job]), {
      instanceOf: ArgumentError,
      message: new RegExp(`^addPolicyJobs: ${got}`),
    });
  });
}

test("what is no policy, no list of jobs, and no option", async (t) => {
  const client = { query: async () => ({ rows: [] }) };
  const refused = (run: Promise<unknown>, message: string) =>
    t.throwsAsync(run, { instanceOf: ArgumentError, message });
  const add = untyped(addPolicyJob);
  const addAll = untyped(addPolicyJobs);
  const aPolicy = "must be a policy made by definePolicy";
  await refused(add(client, "greet", {}), `addPolicyJob: policy ${aPolicy}, got "greet"`);
  await refused(add(client, { name: "Ana" }), `addPolicyJob: policy ${aPolicy}, got an object`);
  const aList = "addPolicyJobs: jobs must be an array of { policy, payload, ...options }";
  await refused(addAll(client, greet, {}), `${aList}, got the policy "greet"`);
  await refused(addAll(client, [null]), `${aList}, got an array`);
  await refused(
    addAll(client, [{ policy: greet, payload: { name: "Ana" } }, { payload: {} }]),
    `addPolicyJobs: jobs[1].policy is missing: it ${aPolicy}`,
  );
  await refused(
    add(client, greet, { name: "Ana" }, {}, { shema: "x" }),
    'unknown option "shema" of addPolicyJob (its last argument): did you mean "schema"?',
  );
});

const cycle: Record<string, unknown> = { name: "Ana" };
cycle.self = { deeper: [cycle] };
let deep: object = {};
for (let level = 0; level < 2000; level++) deep = { d: deep };

const PAYLOADS: readonly (readonly [what: string, payload: object, flaw: string])[] = [
  ["a bigint", { name: "Ana", at: [1, 2n] }, "payload.at[1] is a bigint"],
  ["a Map", { name: "Ana", m: new Map([["secret", 1]]) }, "payload.m is a Map"],
  ["a Set", { name: "Ana", s: { t: new Set([1]) } }, "payload.s.t is a Set"],
  ["a promise", { name: "Ana", p: Promise.resolve("secret") }, "payload.p is a promise"],
  ["a cycle", cycle, "payload.self.deeper[0] is an object that contains itself"],
  [
    "two thousand levels",
    { name: "Ana", deep },
    `payload.deep${".d".repeat(47)}.… is nested more than 1000 levels deep`,
  ],
];
const EXPECTED =
  ", expected values that JSON can hold: make it a string, a number, an array or a plain object";

async function world(t: ExecutionContext) {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [greet], logger: silent });
  t.teardown(() => utils.release());
  const jobs = async () =>
    (
      await pool.query(`select (select count(*) from dispatch_policy.staged_jobs)::int
        + (select count(*) from graphile_worker.jobs)::int as n`)
    ).rows[0].n as number;
  return { pool, utils, jobs };
}

test("a payload that JSON would refuse or empty, with a policy and without", async (t) => {
  const { pool, utils, jobs } = await world(t);
  for (const [what, payload, flaw] of PAYLOADS) {
    const good = { name: "Bo" };
    for (const add of [
      () => addPolicyJob(pool, greet, payload),
      () =>
        addPolicyJobs(
          pool,
          [good, payload].map((one) => ({ policy: greet, payload: one })),
        ),
      () => utils.addJob("greet", payload),
    ]) {
      const error = await t.throwsAsync(add, { instanceOf: PayloadError }, what);
      t.is(error.message, `policy "greet": ${flaw}${EXPECTED}`);
    }
    const error = await t.throwsAsync(
      utils.addJobs([good, payload].map((one) => ({ identifier: "plain", payload: one }))),
      { instanceOf: ArgumentError },
      what,
    );
    t.is(error.message, `a job of plain: ${flaw}${EXPECTED}`);
  }
  t.is(await jobs(), 0);
});

test("a payload that JSON stores in its own way is stored so, as by Graphile Worker", async (t) => {
  const { pool, utils } = await world(t);
  const shared = { x: 1 };
  const map = Object.assign(new Map(), { toJSON: () => "a map" });
  const payload = {
    name: "Ana",
    at: new Date(0),
    none: undefined,
    nan: Number.NaN,
    twice: [shared, shared],
    map,
  };
  await addPolicyJob(pool, greet, payload);
  await utils.addJob("plain", payload);
  const { rows } = await pool.query("select payload from dispatch_policy.staged_jobs");
  t.deepEqual(rows[0].payload, JSON.parse(JSON.stringify(payload)));
});

test("an unknown option of utils, scripts, loops and wrapped tasks", async (t) => {
  const options = { connectionString: "postgres://127.0.0.1:1/none", polices: [greet] };
  const refused = (run: () => Promise<unknown>, owner: string) =>
    t.throwsAsync(run, {
      instanceOf: ArgumentError,
      message: `unknown option "polices" of ${owner}: did you mean "policies"?`,
    });
  await refused(() => untyped(makePolicyUtils)(options), "makePolicyUtils");
  await refused(() => untyped(addJobAdhoc)(options, "greet", {}), "addJobAdhoc");
  await refused(() => untyped(runTickLoop)({ ...options, signal: AbortSignal.abort() }), "runTickLoop");
  await refused(async () => wrapTaskList({}, { polices: [greet] } as never), "wrapTaskList");
  await t.throwsAsync(untyped(makePolicyUtils)(undefined), {
    instanceOf: ArgumentError,
    message: "makePolicyUtils must be given an object of options, got undefined",
  });
});

test("options that a program shares with Graphile Worker's run are no mistake", async (t) => {
  const { url } = await testDatabase(t);
  const shared = {
    connectionString: url,
    logger: silent,
    concurrency: 5,
    pollInterval: 1000,
    noHandleSignals: true,
  };
  const utils = await makePolicyUtils(shared);
  await utils.release();
  t.pass();
});
