import test from "ava";
import { z } from "zod";
import { PayloadError } from "../../src/errors.ts";
import { adaptiveConcurrency, concurrency, throttle } from "../../src/gates/index.ts";
import { definePolicy, type JobInfo, resolveJob, resolveLimits } from "../../src/policy/policy.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests pass what the types forbid
type Anything = any;
const spec = { task: "fetch" };
const fetch = (options: object) => definePolicy("fetch", { partitionBy: "host", ...options } as Anything);

test("a job of a policy with nothing but partitionBy", (t) => {
  t.deepEqual(resolveJob(fetch({ version: 3 }), { host: "a.example" }, spec), {
    policy: "fetch",
    version: 3,
    partition: "a.example",
    lane: null,
    shard: "default",
    context: {},
    weight: 1,
    cost: 1,
    limits: [],
  });
});

test("everything worked out from the parsed payload", (t) => {
  const policy = definePolicy("fetch", {
    payload: z.object({ host: z.string(), account: z.string(), rate: z.coerce.number().default(7) }),
    context: ({ host, account, rate }) => ({ host, account, rate }),
    partitionBy: (ctx) => ctx.host,
    shardBy: (ctx) => `shard-${ctx.account}`,
    weight: (ctx) => ctx.rate * 2,
    cost: (ctx) => ctx.rate / 2,
    gates: ({ throttle, concurrency, adaptiveConcurrency }) => [
      throttle({ rate: (ctx) => ctx.rate, per: "1 minute" }),
      concurrency({ name: "account", scope: (ctx) => ctx.account, max: 40 }),
      concurrency({ name: "all", scope: "policy", max: (ctx) => ctx.rate }),
      adaptiveConcurrency({ initialMax: 2, targetLagMs: 500 }),
    ],
  });
  const job = resolveJob(policy, { host: "h", account: "acct", rate: "8" }, spec);
  t.deepEqual(job, {
    policy: "fetch",
    version: 0,
    partition: "h",
    lane: "7:account4:acct",
    shard: "shard-acct",
    context: { host: "h", account: "acct", rate: 8 },
    weight: 16,
    cost: 4,
    limits: [
      {
        gate: "throttle",
        kind: "throttle",
        scope: "partition",
        position: 0,
        rate: 8,
        per: 60,
        burst: null,
      },
      { gate: "account", kind: "concurrency", scope: "key", position: 1, key: "acct", max: 40 },
      { gate: "all", kind: "concurrency", scope: "policy", position: 2, max: 8 },
      {
        gate: "adaptive_concurrency",
        kind: "adaptive_concurrency",
        scope: "partition",
        position: 3,
        initial_max: 2,
        target_lag_ms: 500,
        min: 1,
        max: null,
        ewma_alpha: 0.5,
        failure_decrease_factor: 0.5,
        overload_decrease_factor: 0.95,
      },
    ],
  });
  t.is(resolveJob(policy, { host: "h", account: "a" }, spec).cost, 3.5);
  t.deepEqual(resolveLimits(policy, { host: "h", account: "acct", rate: 8 }), {
    limits: job.limits,
    lane: job.lane,
    weight: 16,
    shard: "shard-acct",
  });
});

test("context sees the job, with the policy's defaults filled in", (t) => {
  const seen: JobInfo[] = [];
  const policy = fetch({
    job: { queueName: "q", priority: 3, flags: ["slow"] },
    context: (_payload: unknown, job: JobInfo) => {
      seen.push(job);
      return {};
    },
  });
  const runAt = new Date();
  resolveJob(policy, { host: "h" }, spec);
  resolveJob(
    policy,
    { host: "h" },
    { task: "b", queueName: "r", priority: 0, runAt, flags: [], jobKey: "k" },
  );
  t.deepEqual(seen, [
    { task: "fetch", queueName: "q", priority: 3, runAt: undefined, flags: ["slow"], jobKey: undefined },
    { task: "b", queueName: "r", priority: 0, runAt, flags: [], jobKey: "k" },
  ]);
});

test("constant limits are one list, shared by all jobs", (t) => {
  const policy = fetch({
    gates: [throttle({ rate: 1, per: "1 second" }), concurrency({ max: 1, scope: "policy" })],
  });
  const limits = (host: string) => resolveJob(policy, { host }, spec).limits;
  const first = limits("a");
  t.is(limits("b"), first);
  t.deepEqual(
    first.map(({ gate, key }) => [gate, key]),
    [
      ["throttle", undefined],
      ["concurrency", undefined],
    ],
  );
  t.true(Object.isFrozen(first) && first.every((limit) => Object.isFrozen(limit)));
});

test("a scope by context is worked out for each job, however constant the limit", (t) => {
  const policy = fetch({
    context: (payload: Anything) => payload,
    gates: [concurrency({ max: 1, scope: (ctx: Anything) => ctx.account })],
  });
  const keyOf = (account: string) => resolveJob(policy, { host: "h", account }, spec).limits[0]?.key;
  t.deepEqual([keyOf("a"), keyOf("b"), keyOf("a")], ["a", "b", "a"]);
});

test("limits by context are not confused between jobs of a partition", (t) => {
  const policy = fetch({
    context: (payload: Anything) => payload,
    gates: [
      concurrency({ max: (ctx: Anything) => ctx.max }),
      concurrency({ name: "k", scope: (ctx: Anything) => ctx.k, max: 1 }),
    ],
  });
  const limits = (payload: object) => resolveJob(policy, { host: "h", ...payload }, spec).limits;
  t.like(limits({ max: 1, k: "a" }), [{ max: 1 }, { key: "a" }]);
  t.like(limits({ max: 2, k: 5 }), [{ max: 2 }, { key: "5" }]);
});

// --- what is refused: each with the policy and the option named

const boom = () => {
  throw new Error("boom");
};
const ctxOf = (context: unknown) => fetch({ context: () => context });
const circular: Record<string, unknown> = {};
circular.self = { circular };

const REFUSED: [ReturnType<typeof fetch>, string][] = [
  [fetch({ context: boom }), "context threw: boom"],
  [fetch({ context: () => ({}), partitionBy: boom }), "partitionBy threw: boom"],
  [fetch({ shardBy: boom }), "shardBy threw: boom"],
  [fetch({ weight: boom }), "weight threw: boom"],
  [fetch({ cost: boom }), "cost threw: boom"],
  [fetch({ gates: [concurrency({ max: boom })] }), "concurrency: max threw: boom"],
  [fetch({ gates: [throttle({ name: "all", rate: 1, per: boom })] }), 'throttle "all": per threw: boom'],
  [
    fetch({ gates: [concurrency({ name: "account", max: 1, scope: boom })] }),
    'scope of gate "account" threw: boom',
  ],
  [
    ctxOf(Promise.reject(new Error("unseen"))),
    "context must return an object of JSON values, got a Promise (it must be synchronous)",
  ],
  [ctxOf(null), "context must return an object of JSON values, got null"],
  [ctxOf(undefined), "context must return an object of JSON values, got undefined"],
  [ctxOf([1]), "context must return an object of JSON values, got an array"],
  [ctxOf("x"), 'context must return an object of JSON values, got "x"'],
  [ctxOf(new Date()), "context must return an object of JSON values, got a Date"],
  [ctxOf({ at: new Date() }), "context must return JSON values: context.at is a Date"],
  [ctxOf({ a: { b: [1, new Map()] } }), "context must return JSON values: context.a.b[1] is a Map"],
  [ctxOf({ n: Number.NaN }), "context must return JSON values: context.n is NaN"],
  [ctxOf({ n: 5n }), "context must return JSON values: context.n is the bigint 5n"],
  [ctxOf({ f: () => 1 }), "context must return JSON values: context.f is a function"],
  [ctxOf({ s: "a\0" }), "context must return JSON values: context.s has a NUL or half a surrogate pair"],
  [ctxOf({ s: "\ud83d" }), "context must return JSON values: context.s has a NUL or half a surrogate pair"],
  [
    ctxOf({ "a\0": 1 }),
    'context must return JSON values: context has a key with a NUL or half a surrogate pair: "a\\u0000"',
  ],
  [
    fetch({ shardBy: () => "" }),
    'shard returned by shardBy must be a non-empty string of at most 255 characters without NUL, got ""',
  ],
  [
    fetch({ shardBy: () => 5 }),
    "shard returned by shardBy must be a non-empty string of at most 255 characters without NUL, got 5",
  ],
  [
    fetch({ shardBy: () => "s".repeat(256) }),
    `shard returned by shardBy must be a non-empty string of at most 255 characters without NUL, got "${"s".repeat(60)}…"`,
  ],
  [
    fetch({ weight: () => 0 }),
    "weight returned by its function must be a finite number above 0 (1e-12 to 1e12), got 0",
  ],
  [
    fetch({ weight: async () => 1 }),
    "weight returned by its function must be a finite number above 0 (1e-12 to 1e12), got a Promise",
  ],
  [
    fetch({ cost: () => Number.NaN }),
    "cost returned by its function must be a finite number, 0 or more (0, or 1e-12 to 1e12), got NaN",
  ],
  [
    fetch({ cost: () => undefined }),
    "cost returned by its function is missing: it must be a finite number, 0 or more (0, or 1e-12 to 1e12)",
  ],
  [
    fetch({ gates: [concurrency({ max: () => 1.5 })] }),
    "concurrency: max returned by its function must be a whole number, 0 to 2147483647, got 1.5",
  ],
  [
    fetch({ gates: [throttle({ rate: 1, per: (() => 60) as Anything })] }),
    'throttle: per returned by its function must be a duration such as "30 seconds" (ms, seconds, minutes, hours, days), at most a million days, longer than 0, got 60',
  ],
  [
    fetch({ gates: [concurrency({ max: 1, scope: (() => null) as Anything })] }),
    'scope of gate "concurrency" must give a string or a finite number, got null',
  ],
];

for (const [index, [policy, message]] of REFUSED.entries()) {
  test(`refused when added (${index}): ${message}`, (t) => {
    const error = t.throws(() => resolveJob(policy, { host: "h" }, spec), { instanceOf: PayloadError });
    t.is(error.message, `policy "fetch": ${message}`);
    t.is(error.policy, "fetch");
    t.is((error.cause as Error | undefined)?.message, message.endsWith("threw: boom") ? "boom" : undefined);
  });
}

test("a context that contains itself is refused, one that is merely deep is not", (t) => {
  t.throws(() => resolveJob(ctxOf(circular), { host: "h" }, spec), {
    message: /contains itself, or is nested too deeply$/,
  });
  const deep = JSON.parse(`${'{"a":'.repeat(50)}1${"}".repeat(50)}`);
  t.deepEqual(resolveJob(ctxOf(deep), { host: "h" }, spec).context, deep);
});

test("a context may hold undefined, null and objects without a prototype", (t) => {
  const context = { a: undefined, b: null, c: Object.assign(Object.create(null), { d: [true] }) };
  t.is(resolveJob(ctxOf(context), { host: "h" }, spec).context, context as Anything);
});

test("limits worked out from a stored context name the policy too", (t) => {
  const policy = fetch({ context: () => ({}), gates: [concurrency({ max: (ctx: Anything) => ctx.max })] });
  t.throws(() => resolveLimits(policy, { max: "5" }), {
    instanceOf: PayloadError,
    message:
      'policy "fetch": concurrency: max returned by its function must be a whole number, 0 to 2147483647, got a string',
  });
});

test("values that disagree once they are worked out are refused", (t) => {
  const gates = [adaptiveConcurrency({ initialMax: (ctx: Anything) => ctx.n, min: 3, targetLagMs: 1 })];
  const policy = fetch({ context: ({ n }: Anything) => ({ n }), gates });
  t.notThrows(() => resolveJob(policy, { host: "h", n: 3 }, spec));
  t.throws(() => resolveJob(policy, { host: "h", n: 2 }, spec), {
    instanceOf: PayloadError,
    message:
      'policy "fetch": adaptive_concurrency: min must be no more than initialMax, got min 3 and initialMax 2',
  });
});

test("a flag that would pass the job off as another is refused", (t) => {
  t.throws(
    () => resolveJob(fetch({}), { host: "h" }, { task: "fetch", flags: ["ok", "dispatch_policy:5"] }),
    {
      instanceOf: PayloadError,
      message:
        'policy "fetch": flags must not begin with "dispatch_policy:", which is reserved, got "dispatch_policy:5"',
    },
  );
});

test("something that is no policy is refused", (t) => {
  t.throws(() => resolveJob("fetch" as Anything, {}, spec), {
    message: 'expected a policy made by definePolicy, got "fetch"',
  });
});
