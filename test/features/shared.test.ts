// One limit for several policies: counted together, strict, fair between policies, woken across them.
import test, { type ExecutionContext } from "ava";
import type { Explanation } from "../../src/index.ts";
import {
  adaptiveConcurrency,
  concurrency,
  definePolicy,
  dispatchPolicyPreset,
  makePolicyUtils,
  PolicyDefinitionError,
  shared,
  throttle,
} from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, type Payload, policyOf, type Scenario, scenario } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";

type Limit = Parameters<typeof shared<Ctx, string>>[1];

interface Two {
  readonly it: Scenario;
  /** `stage("a", "3@k1 2@k2")`. */
  stage(policy: string, words: string, more?: Partial<Payload>): Promise<void>;
  /** Passes over these policies in turn (x: the limit), `seconds` into the scenario. How many went, by policy and key. */
  tick(policies: string, seconds?: number): Promise<Record<string, number>>;
  /** The oldest jobs in flight of a policy end. */
  end(policy: string, count: number): Promise<void>;
  running(): Promise<Record<string, number>>;
}

/** Policies a, b and c, whose jobs share the limit `api`. */
async function two(
  t: ExecutionContext,
  limit: Limit,
  words: Parameters<typeof policyOf>[1] = {},
): Promise<Two> {
  const api = shared("api", limit);
  const gates = [api, ...((words.gates as never[] | undefined) ?? [])];
  const others = ["b", "c"].map((name) => policyOf(name, { ...words, gates }));
  // behind the clock, by which releases go: nobody is late
  const it = await scenario(t, policyOf("a", { ...words, gates }), { others, clock: "now" });
  const inFlight = () =>
    it.rows("select policy, partition, job_id from dispatch_policy.in_flight_jobs order by staged_id");
  const running = async () => {
    const counts: Record<string, number> = {};
    for (const { policy, partition } of await inFlight())
      counts[`${policy} ${partition}`] = (counts[`${policy} ${partition}`] ?? 0) + 1;
    return counts;
  };
  return {
    it,
    running,
    async stage(policy, words, more = {}) {
      const jobs = words.split(" ").flatMap((word) => {
        const [count, key] = word.split("@") as [string, string];
        return Array.from({ length: Number(count) }, () => ({
          identifier: policy,
          payload: { key, ...more },
          runAt: new Date("2020-02-29T00:00:00Z"),
        }));
      });
      await it.utils.addJobs(jobs as never);
    },
    async tick(policies, seconds = 0) {
      const before = await running();
      for (const policy of policies)
        await it.utils.tick({ policy: policy === "x" ? "api" : policy, now: it.at(seconds) });
      const after = Object.entries(await running());
      return Object.fromEntries(
        after.map(([name, count]) => [name, count - (before[name] ?? 0)]).filter(([, count]) => count !== 0),
      );
    },
    async end(policy, count) {
      const jobs = (await inFlight()).filter((job) => job.policy === policy).slice(0, count);
      await it.utils.completeJobs(jobs.map(({ job_id }) => job_id));
      await it.utils.sweep();
    },
  };
}

const all = (max: number) => concurrency<Ctx>({ scope: "policy", max });
const byAccount = (max: number) => concurrency<Ctx>({ scope: (ctx) => ctx.account, max });

test("jobs of two policies count together at a cap", async (t) => {
  const { stage, tick, end, running } = await two(t, byAccount(3));
  await stage("a", "2@k");
  await stage("b", "5@k");
  t.deepEqual(await tick("ab"), { "a k": 2, "b k": 1 });
  t.deepEqual(await tick("ab"), {});
  await end("a", 1);
  t.deepEqual(await running(), { "a k": 1, "b k": 1 });
  t.deepEqual(await tick("ab"), { "b k": 1 });
});

test("keys of a shared limit count each by itself, also with the keys of partitions", async (t) => {
  const { stage, tick } = await two(t, concurrency<Ctx>({ max: 1 }));
  await stage("a", "2@k 2@l");
  await stage("b", "2@k 2@m");
  t.deepEqual(await tick("ab"), { "a k": 1, "a l": 1, "b m": 1 });
});

test("a slot that one policy frees goes to the policy whose turn it is", async (t) => {
  const { stage, tick, end } = await two(t, all(4));
  await stage("a", "20@k");
  t.deepEqual(await tick("a"), { "a k": 4 });
  await stage("b", "20@k");
  t.deepEqual(await tick("ba"), {});
  await end("a", 4);
  t.deepEqual(await tick("abab"), { "b k": 4 }, "a has had four, and b none");
  await end("b", 4);
  t.deepEqual(await tick("abab"), { "a k": 2, "b k": 2 });
  await end("a", 1);
  t.deepEqual(await tick("abab"), { "a k": 1 }, "of equals one");
  await end("b", 1);
  t.deepEqual(await tick("abab"), { "b k": 1 }, "and then the other");
});

test("a policy keeps its places although one of its partitions has few jobs", async (t) => {
  const { stage, tick, end } = await two(t, all(6));
  await stage("b", "12@k");
  t.deepEqual(await tick("b"), { "b k": 6 });
  await stage("a", "6@k 1@l");
  t.deepEqual(await tick("ab"), {});
  await end("b", 6);
  t.deepEqual(await tick("b"), {}, "its next job is its seventh");
  t.deepEqual(await tick("ab"), { "a k": 5, "a l": 1 });
});

test("weights count between policies", async (t) => {
  const { stage, tick, end } = await two(t, all(8));
  await stage("a", "40@k");
  await stage("b", "40@k", { weight: 3 });
  t.deepEqual(await tick("ab"), { "a k": 8 });
  await end("a", 8);
  t.deepEqual(await tick("baba"), { "b k": 8 });
  await end("b", 8);
  for (const _ of [1, 2]) {
    t.deepEqual(await tick("abab"), { "b k": 8 }, "a has had 8, and b less than three times as many");
    await end("b", 8);
  }
  t.deepEqual(await tick("baba"), { "a k": 2, "b k": 6 });
});

test("tokens of a shared throttle go to policies by their virtual times", async (t) => {
  const { stage, tick } = await two(t, throttle<Ctx>({ scope: "policy", rate: 1, per: "1 second" }));
  await stage("a", "10@k");
  await stage("b", "10@k");
  await stage("c", "10@k");
  t.deepEqual(await tick("abc"), { "a k": 1 });
  const went: string[] = [];
  for (let second = 1; second <= 6; second++)
    went.push(...Object.keys(await tick("abcabc", second)).map((name) => name[0]!));
  t.deepEqual(went.slice(0, 2).toSorted(), ["b", "c"], went.join());
  t.deepEqual(went.slice(2, 5).toSorted(), ["a", "b", "c"], went.join());
});

test("a dear job of one policy keeps its tokens from cheap ones of another", async (t) => {
  const { stage, tick } = await two(
    t,
    throttle<Ctx>({ scope: "policy", rate: 1, per: "1 second", burst: 5 }),
  );
  await stage("b", "5@k");
  t.deepEqual(await tick("b"), { "b k": 5 });
  await stage("a", "1@dear", { cost: 5 });
  t.deepEqual(await tick("a", 1), {});
  await stage("b", "5@k");
  t.deepEqual(await tick("baba", 3), {});
  t.deepEqual(await tick("baba", 5), { "a dear": 1 });
  t.deepEqual(await tick("baba", 6), { "b k": 1 });
});

test("room that one policy cannot use goes to the other", async (t) => {
  const { stage, tick, end } = await two(t, all(4), { gates: [concurrency<Ctx>({ name: "own", max: 1 })] });
  await stage("a", "1@1 1@2 1@3 1@4 2@5");
  t.is(Object.keys(await tick("a")).length, 4);
  await stage("b", "9@k");
  t.deepEqual(await tick("ba"), {});
  await end("a", 4);
  t.deepEqual(await tick("abababab"), { "a 5": 1, "b k": 1 });
});

test("of policies that share a limit, those that are paused keep nobody waiting", async (t) => {
  const { it, stage, tick, end } = await two(t, all(2));
  await stage("a", "9@k");
  await tick("a");
  await stage("b", "9@k");
  await tick("b");
  await it.utils.pause({ policy: "b" });
  await end("a", 2);
  t.deepEqual(await tick("aa"), { "a k": 2 });
  await end("a", 1);
  await it.utils.resume({ policy: "b" });
  t.deepEqual(await tick("baba"), { "b k": 1 });
});

test("a job that waits for many tokens keeps nobody waiting once its policy is paused", async (t) => {
  const { it, stage, tick } = await two(
    t,
    throttle<Ctx>({ scope: "policy", rate: 1, per: "1 second", burst: 50 }),
  );
  await stage("b", "50@k");
  await tick("b");
  await stage("a", "1@dear", { cost: 50 });
  await stage("b", "5@k");
  t.deepEqual(await tick("abab", 2), {});
  await it.utils.pause({ policy: "a" });
  t.deepEqual(await tick("xb", 2), { "b k": 2 });
});

test("a shared limit has no jobs to stop", async (t) => {
  const { it } = await two(t, all(1));
  for (const stop of [it.utils.pause, it.utils.resume, it.utils.disable])
    await t.throwsAsync(stop({ policy: "api" }), { message: /'api' is a shared limit, expected a policy/ });
  await t.throwsAsync(it.utils.hold({ policy: "api", partition: "k", forMs: 1000 }), {
    message: /'api' is a shared limit, expected a policy/,
  });
});

test("a pause of all policies is theirs, and each may go on alone", async (t) => {
  const { it, stage, tick } = await two(t, all(1));
  await stage("a", "9@k");
  await stage("b", "9@k");
  t.deepEqual(await tick("ab"), { "a k": 1 });
  await it.utils.pause({ all: true });
  await it.utils.resume({ policy: "b" });
  await it.utils.setLimit({ policy: "api", gate: "api", set: { max: 2 } });
  t.deepEqual(await tick("xab"), { "b k": 1 });
});

test("a replay without the jobs of the others is refused", async (t) => {
  const { it, stage, tick } = await two(t, all(1), { load: { keep: "1 hour" } });
  await stage("a", "1@k");
  await tick("a");
  await t.throwsAsync(it.utils.diff({ policy: "a", gate: "api", set: { max: 2 } }), {
    message:
      'diff: policy "a" shares the limit "api", expected one without shared limits: jobs of the others would be missing',
  });
});

test("metrics name the limits that policies share, and have their own figures", async (t) => {
  const { it, stage, tick } = await two(t, byAccount(2));
  await stage("a", "1@k");
  await stage("b", "1@k");
  await tick("ab");
  const figures = await it.rows(
    `select name, labels, value from dispatch_policy.metrics()
     where name in ('policy_shares_limit', 'limiter_utilization_ratio') order by name, labels`,
  );
  t.deepEqual(
    figures.map(({ name, labels, value }) => [name, labels, value]),
    [
      ["limiter_utilization_ratio", { gate: "api", policy: "api" }, 1],
      ["policy_shares_limit", { limit: "api", policy: "a" }, 1],
      ["policy_shares_limit", { limit: "api", policy: "b" }, 1],
      ["policy_shares_limit", { limit: "api", policy: "c" }, 1],
    ],
  );
});

test("one that nobody ticks loses its places after a second, and has its turn when it comes", async (t) => {
  const { it, stage, tick, end, running } = await two(t, all(2));
  await stage("a", "9@k");
  await tick("a");
  await stage("b", "9@k");
  await tick("b");
  await end("a", 2);
  t.deepEqual(await tick("aaa"), {}, "b has had nothing");
  await until("b has lost its places", async () => {
    await it.tickNow();
    return (await running())["a k"] === 2;
  });
  await end("a", 1);
  await it.utils.tick({ policy: "b" });
  t.is((await running())["b k"], 1);
});

test("an operator sets it once, by the name of any policy that has it or by its own", async (t) => {
  const { it, stage, tick } = await two(t, byAccount(1));
  await stage("a", "9@k");
  await stage("b", "9@k");
  t.deepEqual(await tick("ab"), { "a k": 1 });
  t.like(await it.utils.setLimit({ policy: "b", gate: "api", key: "k", set: { max: 2 } }), { matched: 1 });
  t.deepEqual(await tick("xaba"), { "b k": 1 });
  const limits = await it.utils.limits({ policy: "api" });
  t.deepEqual(
    limits.map(({ policy, gate, key, override }) => [policy, gate, key, override]),
    [["api", "api", "k", { max: 2 }]],
  );
  await it.utils.clearLimit({ policy: "a", gate: "api", key: "k" });
  t.deepEqual(await it.utils.limits({ policy: "api" }), []);
  await it.utils.hold({ policy: "api", gate: "api", key: "k", forMs: 3_600_000 });
  t.deepEqual(
    (await it.rows("select verb from dispatch_policy.audit where policy = 'api' order by id")).map(
      ({ verb }) => verb,
    ),
    ["set_limit", "clear_limit", "hold"],
  );
  await t.throwsAsync(it.utils.setLimit({ policy: "a", gate: "api", key: "k", set: { rate: 3 } }), {
    message: /concurrency has no value 'rate'/,
  });
});

test("explain names those who share it, and who occupies it", async (t) => {
  const { it, stage, tick } = await two(t, byAccount(1));
  await stage("a", "1@k");
  await stage("b", "1@k");
  await tick("ab");
  const { reason, gate, gates, mend }: Explanation = await it.utils.explain({ policy: "b", partition: "k" });
  t.deepEqual([reason, gate], ["concurrency_full", "api"]);
  const [api] = gates;
  t.deepEqual(api!.sharedBy, ["a", "b", "c"]);
  t.deepEqual(
    api!.holders.map(({ policy, partition }) => [policy, partition]),
    [["a", "k"]],
  );
  t.like(api, { key: "k", limit: { max: 1 }, used: 1, free: 0, source: "policy" });
  t.truthy(mend);
  const [found] = (await it.utils.status({ policy: "api" })).policies;
  t.like(found, { policy: "api", sharedBy: ["a", "b", "c"], staged: 0, inFlight: 0 });
  t.is((await it.utils.status({ policy: "a" })).policies[0]!.sharedBy, null);
});

test("tokens are taken by any name", async (t) => {
  const { it, stage, tick } = await two(
    t,
    throttle<Ctx>({ scope: (ctx) => ctx.account, rate: 2, per: "1 day" }),
  );
  t.like(await it.utils.take({ policy: "a", gate: "api", key: "k" }), { taken: true });
  await stage("b", "9@k");
  t.deepEqual(await tick("b"), { "b k": 1 });
  t.like(await it.utils.take({ policy: "api", gate: "api", key: "k" }), { taken: false });
});

test("a new definition changes the numbers at once, and the highest version counts", async (t) => {
  const declared = (max: number, version: number) =>
    [policyOf("a"), policyOf("b")].map(({ identifier }) =>
      policyOf(identifier, { gates: [shared("api", all(max), { version })] }),
    );
  const { it, stage, tick } = await two(t, all(1));
  await stage("a", "9@k");
  await stage("b", "9@k");
  t.deepEqual(await tick("ab"), { "a k": 1 });
  const newer = await it.makeUtils(declared(4, 2));
  await newer.addJobs([{ identifier: "a", payload: { key: "k" } }] as never);
  t.deepEqual(await tick("xbaba"), { "a k": 1, "b k": 2 });
  const older = await it.makeUtils(declared(9, 1));
  await older.addJobs([{ identifier: "a", payload: { key: "k" } }] as never);
  t.deepEqual(await tick("xbaba"), {});
  t.is((await it.rows("select max from dispatch_policy.limiters where gate = 'api'"))[0].max, 4);
});

test("a limit that is in use is not removed", async (t) => {
  const { it } = await two(t, all(1));
  await t.throwsAsync(it.utils.removePolicy({ policy: "api" }), {
    message: /'api' is a shared limit of 'a', 'b', 'c', expected none/,
  });
  for (const policy of ["a", "b", "c"]) await it.utils.removePolicy({ policy });
  await it.utils.removePolicy({ policy: "api" });
  t.deepEqual((await it.utils.status()).policies, []);
});

test("a job of its policies goes at once, and releases pass slots on, while nobody else waits", async (t) => {
  const api = shared("api", concurrency({ scope: "policy", max: 2 }));
  const gates = [api];
  const [a, b] = ["a", "b"].map((name) => definePolicy(name, { partitionBy: "key", gates }));
  const it = await scenario(t, a!, { others: [b!] });
  const started: string[] = [];
  const task = (name: string) => async () => void started.push(name);
  await it.worker({ tasks: { a: task("a"), b: task("b") } });
  const jobs = Array.from({ length: 60 }, (_, n) => ({
    identifier: n % 2 === 0 ? "a" : "b",
    payload: { key: `k${n % 3}` },
  }));
  await it.utils.addJobs(jobs as never);
  await until("all have run", () => started.length === 60);
  t.is(started.filter((name) => name === "a").length, 30);
});

test("an adaptive one learns from each release, however small", async (t) => {
  const limit = adaptiveConcurrency<Ctx>({ scope: "policy", initialMax: 10, targetLagMs: 100 });
  const { it, stage, tick, running } = await two(t, limit);
  await stage("a", "1@k");
  await tick("a");
  const [job] = await it.rows("select job_id from dispatch_policy.in_flight_jobs", []);
  await it.rows("select left_ids from dispatch_policy_internal._release($1, null, true)", [
    JSON.stringify([{ job: job!.job_id, ok: true, lagMs: 1000 }]),
  ]);
  t.deepEqual(await running(), {});
  t.is(
    (await it.rows("select current_max from dispatch_policy.limiters where policy = 'api'", []))[0]!
      .current_max,
    9,
  );
});

test("wrong definitions are refused, and say what is expected", (t) => {
  const refused = (declare: () => unknown, message: string) =>
    t.throws(declare, { instanceOf: PolicyDefinitionError, message });
  const one = throttle<Ctx>({ rate: 1, per: "1 second" });
  refused(
    () => shared("", one),
    'the first argument of shared must be a non-empty string of at most 128 characters without NUL, got ""',
  );
  refused(
    () => shared("x", {} as never),
    'shared limit "x": expected a gate, such as throttle({ … }), got an object',
  );
  refused(
    () => shared("x", shared("y", one)),
    'shared limit "x": expected a gate, such as throttle({ … }), got an object',
  );
  refused(
    () => shared("x", throttle({ name: "y", rate: 1, per: "1 second" })),
    'shared limit "x": name of its gate must be left out, got "y": the limit has one',
  );
  refused(
    () => shared("x", throttle<Ctx>({ rate: (ctx) => ctx.rate, per: "1 second" })),
    'shared limit "x": rate must be a constant, got a function: all policies go by one number. Another number for one key is set by set-limit',
  );
  refused(
    () => shared("x", concurrency({ max: 1, perWorker: true })),
    'shared limit "x": perWorker must be left out, got true: no worker pool runs jobs of the limit itself',
  );
  refused(
    () => shared("x", one, { version: -1 }),
    'shared limit "x": version must be a whole number, 0 to 2147483647, got -1',
  );
  refused(
    () => policyOf("a", { gates: [shared("x", one)], fairness: null }),
    'policy "a": fairness must not be null with the shared limit "x", got null: policies share it by fair shares',
  );
  refused(
    () => policyOf("a", { gates: [shared("x", one), shared("x", one)] }),
    'policy "a": gates must differ in name, got "x" twice: give one of them a name of its own',
  );
  t.notThrows(() => shared("x", adaptiveConcurrency({ initialMax: 1, targetLagMs: 100 })));
  const preset = (...policies: Parameters<typeof policyOf>[]) =>
    dispatchPolicyPreset({ policies: policies.map(([name, words]) => policyOf(name, words)) });
  t.throws(
    () =>
      preset(
        ["a", { gates: [shared("x", one)] }],
        ["b", { gates: [shared("x", throttle({ rate: 2, per: "1 second" }))] }],
      ),
    { message: 'policies: two shared limits are named "x", and differ: declare it once, and import it' },
  );
  t.throws(() => preset(["x", {}], ["b", { gates: [shared("x", one)] }]), {
    message: 'policies: a policy and a shared limit are named "x": give one of them another name',
  });
  t.notThrows(() => preset(["a", { gates: [shared("x", one)] }], ["b", { gates: [shared("x", one)] }]));
});

test("a policy and a shared limit of one name are refused, whichever comes second", async (t) => {
  const { it } = await two(t, all(1));
  const pool = it.connections(2);
  const declared = async (policies: ReturnType<typeof policyOf>[]) => {
    const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
    await utils.addJobs([]).finally(() => utils.release());
  };
  await t.throwsAsync(declared([policyOf("api")]), {
    instanceOf: PolicyDefinitionError,
    message: /'api' has the name of a shared limit, expected another name/,
  });
  await t.throwsAsync(declared([policyOf("d", { gates: [shared("a", all(1))] })]), {
    instanceOf: PolicyDefinitionError,
    message: /'a' has the name of a policy, expected another name/,
  });
});
