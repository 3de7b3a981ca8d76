import test from "ava";
import { z } from "zod";
import { PolicyDefinitionError } from "../../src/errors.ts";
import { concurrency, throttle } from "../../src/gates/index.ts";
import {
  type AnyPolicy,
  definePolicy,
  isPolicy,
  policyDefinition,
  tasksOf,
} from "../../src/policy/policy.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests pass what the types forbid
type Anything = any;
const declare = (options: object, name = "fetch"): AnyPolicy => definePolicy(name, options as Anything);

test("a policy with nothing but partitionBy", (t) => {
  const policy = definePolicy("fetch", { partitionBy: "host" });
  t.is(policy.identifier, "fetch");
  t.true(isPolicy(policy) && Object.isFrozen(policy));
  t.false(isPolicy("fetch"));
  t.deepEqual(tasksOf(policy), ["fetch"]);
  t.deepEqual(policyDefinition(policy), {
    name: "fetch",
    tasks: ["fetch"],
    version: 0,
    enabled: true,
    gates: [],
    halfLifeSeconds: undefined,
    fairBy: "jobs",
    tickAdmissionBudget: undefined,
    admissionBatchSize: undefined,
    ahead: undefined,
    weight: 1,
    classShare: null,
    cost: 1,
    shard: "default",
    partitionPaths: ["host"],
    resolvesInSql: true,
    job: {},
    retries: "restage",
    unmanaged: "enforce",
    refundAttempt: false,
    breaker: null,
    slotTimeoutSeconds: null,
    perWorker: false,
    maxPending: null,
    whenBusy: "wait",
    busyDelaySeconds: null,
    order: null,
    expiresAfterSeconds: null,
    debounce: null,
    cancelsAfterSeconds: null,
    uniqueForSeconds: null,
    load: null,
    history: null,
    functions: {},
  });
});

test("strict order brings a gate that nobody can change", (t) => {
  const { order, gates } = policyDefinition(
    definePolicy("imports", {
      partitionBy: "record",
      order: "strict",
      gates: ({ throttle }) => [throttle({ rate: 10, per: "1 minute" })],
    }),
  );
  t.is(order, "strict");
  t.deepEqual(
    gates.map(({ name }) => name),
    ["throttle", "strict_order"],
  );
  t.like(gates[1], {
    kind: "concurrency",
    scope: "partition",
    position: 1,
    values: { max: 1 },
    overrides: {},
  });
});

test("every option finds its way into the definition", (t) => {
  const policy = definePolicy("imports", {
    tasks: ["import_csv", "import_xml"],
    partitionBy: ["accountId", "file.id"],
    weight: 2.5,
    cost: 0,
    gates: ({ throttle, concurrency }) => [
      throttle({ rate: 10, per: "1 minute" }),
      concurrency({ name: "all", scope: "policy", max: 40 }),
    ],
    fairness: { halfLife: "90 seconds", by: "work" },
    tickAdmissionBudget: 200,
    admissionBatchSize: 50,
    ahead: "2 seconds",
    job: { queueName: "q", priority: -3, maxAttempts: 5, flags: ["slow"] },
    retries: "bypass",
    slotTimeout: "90 seconds",
    maxPending: { partition: 1000, whenFull: "drop_oldest" },
    whenBusy: "skip",
    expiresAfter: "15 minutes",
    debounce: { wait: "5 seconds", maxWait: "1 minute" },
    whenRunning: { cancel: true, minRun: "1500 ms" },
    load: { keep: "90 minutes" },
    history: { keep: "7 days" },
    version: 7,
    enabled: false,
  });
  t.deepEqual(policyDefinition(policy), {
    name: "imports",
    tasks: ["import_csv", "import_xml"],
    version: 7,
    enabled: false,
    gates: [
      {
        name: "throttle",
        kind: "throttle",
        scope: "partition",
        position: 0,
        values: { rate: 10, per: 60, burst: null },
        constants: { rate: 10, per: 60, burst: null },
        overrides: throttle({ rate: 1, per: "1 second" }).overrides,
      },
      {
        name: "all",
        kind: "concurrency",
        scope: "policy",
        position: 1,
        values: { max: 40 },
        constants: { max: 40 },
        overrides: {
          max: { expects: "a whole number, 0 to 999999999", least: 0, most: 999_999_999, whole: true },
        },
      },
    ],
    halfLifeSeconds: 90,
    fairBy: "work",
    tickAdmissionBudget: 200,
    admissionBatchSize: 50,
    ahead: { jobs: null, seconds: 2 },
    weight: 2.5,
    classShare: null,
    cost: 0,
    shard: "default",
    partitionPaths: ["accountId", "file.id"],
    resolvesInSql: true,
    job: { queueName: "q", priority: -3, maxAttempts: 5, flags: ["slow"] },
    retries: "bypass",
    unmanaged: "enforce",
    refundAttempt: false,
    breaker: null,
    slotTimeoutSeconds: 90,
    perWorker: false,
    maxPending: { partition: 1000, policy: null, whenFull: "drop_oldest", strict: false },
    whenBusy: "skip",
    busyDelaySeconds: null,
    order: null,
    expiresAfterSeconds: 900,
    debounce: { waitSeconds: 5, maxWaitSeconds: 60 },
    cancelsAfterSeconds: 1.5,
    uniqueForSeconds: null,
    load: { keepSeconds: 5400 },
    history: { keepSeconds: 604_800 },
    functions: {},
  });
  t.deepEqual(tasksOf(policy), ["import_csv", "import_xml"]);
  t.is(
    policyDefinition(definePolicy("p", { partitionBy: "key", uniqueFor: "1 hour" })).uniqueForSeconds,
    3600,
  );
});

test("functions of the context stand as null, and by their digest", (t) => {
  const definition = policyDefinition(
    definePolicy("fetch", {
      context: (payload) => ({ host: String(payload) }),
      partitionBy: (ctx) => ctx.host,
      shardBy: (ctx) => ctx.host,
      weight: (ctx) => ctx.host.length,
      cost: (ctx) => ctx.host.length,
      gates: ({ concurrency }) => [concurrency({ max: (ctx) => ctx.host.length, scope: (ctx) => ctx.host })],
    }),
  );
  t.like(definition, { weight: null, cost: null, shard: null, partitionPaths: null, resolvesInSql: false });
  t.like(definition.gates[0], { scope: "key", values: null });
  t.deepEqual(Object.keys(definition.functions), [
    "context",
    "partitionBy",
    "shardBy",
    "weight",
    "cost",
    "gates.concurrency.max",
    "gates.concurrency.scope",
  ]);
});

const inSql = (more: object) => policyDefinition(declare({ partitionBy: "host", ...more })).resolvesInSql;

test("SQL can stage alone only where nothing needs JavaScript", (t) => {
  t.true(
    inSql({ gates: [throttle({ rate: 1, per: "1 second" }), concurrency({ max: 1, scope: "policy" })] }),
  );
  t.false(inSql({ payload: z.object({ host: z.string() }) }));
  t.false(inSql({ context: () => ({}) }));
  t.false(inSql({ weight: () => 1 }));
  t.false(inSql({ class: () => 1 }));
  t.false(inSql({ cost: () => 1 }));
  t.false(inSql({ shardBy: () => "a" }));
  t.false(inSql({ gates: [concurrency({ max: () => 1 })] }));
  t.false(inSql({ gates: [concurrency({ max: 1, scope: () => "x" })] }));
  t.false(inSql({ context: () => ({}), partitionBy: () => "x" }));
});

test("null stands for the preset's default, but for fairness it means none", (t) => {
  const definition = policyDefinition(
    definePolicy("fetch", {
      partitionBy: "x",
      fairness: null,
      tickAdmissionBudget: null,
      admissionBatchSize: null,
    }),
  );
  t.like(definition, { halfLifeSeconds: null, tickAdmissionBudget: null, admissionBatchSize: null });
});

test("what is changed after the declaration changes nothing", (t) => {
  const options = {
    partitionBy: ["a", "b"],
    tasks: ["x", "y"],
    gates: [concurrency({ max: 1 })],
    job: { flags: ["slow"] },
  };
  const policy = declare(options);
  options.partitionBy.length = options.tasks.length = options.gates.length = options.job.flags.length = 0;
  const definition = policyDefinition(policy);
  t.is(definition.partitionPaths?.length, 2);
  t.is(definition.gates.length, 1);
  t.is(tasksOf(policy).length, 2);
  t.deepEqual(definition.job.flags, ["slow"]);
});

test("identifiers of 128 characters are allowed, an emoji is one", (t) => {
  t.notThrows(() => declare({ partitionBy: "x" }, "n".repeat(128)));
  t.notThrows(() => declare({ partitionBy: "x" }, "😀".repeat(128)));
});

const NAME =
  "the first argument of definePolicy must be a non-empty string of at most 128 characters without NUL, got";
const PATHS = 'a function of the context, a path such as "account.id", or an array of paths';
const with_ = (more: object) => () => declare({ partitionBy: "host", ...more });

const REFUSED: [() => unknown, string | RegExp][] = [
  [() => declare({ partitionBy: "x" }, ""), `${NAME} ""`],
  [() => declare({ partitionBy: "x" }, "n".repeat(129)), `${NAME} "${"n".repeat(60)}…"`],
  [() => declare({ partitionBy: "x" }, 5 as Anything), `${NAME} 5`],
  [
    () => declare({ partitionBy: "x" }, "dispatch_policy_tick"),
    'the first argument of definePolicy must not be "dispatch_policy_tick": that task is what admits jobs',
  ],
  [
    () => declare(undefined as Anything),
    'policy "fetch": definePolicy must be given an object of options, got undefined',
  ],
  [with_({ gate: [] }), 'policy "fetch": unknown option "gate" of definePolicy: did you mean "gates"?'],
  [
    with_({ admission_batch_size: 3 }),
    'policy "fetch": unknown option "admission_batch_size" of definePolicy: did you mean "admissionBatchSize"?',
  ],
  [() => declare({}), `policy "fetch": partitionBy is missing: it must be ${PATHS}`],
  [with_({ partitionBy: 5 }), `policy "fetch": partitionBy must be ${PATHS}, got 5`],
  [with_({ partitionBy: "" }), `policy "fetch": partitionBy must be ${PATHS}, got ""`],
  [with_({ partitionBy: "a..b" }), `policy "fetch": partitionBy must be ${PATHS}, got "a..b"`],
  [with_({ partitionBy: [] }), `policy "fetch": partitionBy must be ${PATHS}, got an empty array`],
  [with_({ partitionBy: ["a", null] }), `policy "fetch": partitionBy must be ${PATHS}, got null`],
  [
    with_({ partitionBy: () => "x" }),
    'policy "fetch": partitionBy must be a path into the payload if there is no context, got a function: it would always get {}',
  ],
  [
    with_({ payload: { parse: () => {} } }),
    'policy "fetch": payload must be a Standard Schema (zod 3.24+, zod 4, valibot, arktype), got an object without "~standard"',
  ],
  [with_({ context: {} }), 'policy "fetch": context must be a function, got an object'],
  [with_({ shardBy: "a" }), 'policy "fetch": shardBy must be a function, got "a"'],
  [
    with_({ weight: 0 }),
    'policy "fetch": weight must be a finite number above 0 (1e-12 to 1e12), or a function of the context, got 0',
  ],
  [
    with_({ weight: -1 }),
    'policy "fetch": weight must be a finite number above 0 (1e-12 to 1e12), or a function of the context, got -1',
  ],
  [
    with_({ cost: -1 }),
    'policy "fetch": cost must be a finite number, 0 or more (0, or 1e-12 to 1e12), or a function of the context, got -1',
  ],
  [
    with_({ cost: Number.NaN }),
    'policy "fetch": cost must be a finite number, 0 or more (0, or 1e-12 to 1e12), or a function of the context, got NaN',
  ],
  [
    with_({ gates: {} }),
    'policy "fetch": gates must be an array of gates, or a function that returns one, got an object',
  ],
  [
    with_({ gates: async () => [] }),
    'policy "fetch": gates must be an array of gates, or a function that returns one, got a Promise',
  ],
  [
    with_({ gates: [{ kind: "throttle" }] }),
    'policy "fetch": gates[0] must be made by throttle, concurrency, adaptiveConcurrency, got an object',
  ],
  [
    with_({ gates: [undefined] }),
    'policy "fetch": gates[0] must be made by throttle, concurrency, adaptiveConcurrency, got undefined',
  ],
  [
    with_({ gates: [concurrency({ max: 1 }), concurrency({ max: 2 })] }),
    'policy "fetch": gates must differ in name, got "concurrency" twice: give one of them a name of its own',
  ],
  [
    with_({ gates: ({ throttle }: Anything) => [throttle({ rate: 1, per: "1 second", bust: 2 })] }),
    'policy "fetch": unknown option "bust" of throttle: did you mean "burst"?',
  ],
  [
    with_({ gates: () => [(undefined as Anything).max] }),
    "policy \"fetch\": gates threw: Cannot read properties of undefined (reading 'max')",
  ],
  [
    with_({ gates: null }),
    'policy "fetch": gates must be an array of gates, or a function that returns one, got null',
  ],
  [with_({ fairness: {} }), /^policy "fetch": fairness: halfLife is missing: it must be a duration/],
  [
    with_({ fairness: { halflife: "1 minute" } }),
    'policy "fetch": unknown option "halflife" of fairness: did you mean "halfLife"?',
  ],
  [with_({ fairness: { by: "time" } }), 'policy "fetch": fairness: by must be "jobs" or "work", got "time"'],
  [
    with_({ fairness: { halfLife: 60 } }),
    /^policy "fetch": fairness: halfLife must be a duration .*, got 60$/,
  ],
  [
    with_({ fairness: "1 minute" }),
    'policy "fetch": fairness must be given an object of options, got "1 minute"',
  ],
  [
    with_({ tickAdmissionBudget: 0 }),
    'policy "fetch": tickAdmissionBudget must be a whole number, 1 to 1073741824, got 0',
  ],
  [
    with_({ admissionBatchSize: -5 }),
    'policy "fetch": admissionBatchSize must be a whole number, 1 to 1073741824, got -5',
  ],
  [
    with_({ admissionBatchSize: 1.5 }),
    'policy "fetch": admissionBatchSize must be a whole number, 1 to 1073741824, got 1.5',
  ],
  [
    with_({ ahead: -1 }),
    /^policy "fetch": ahead must be a whole number, 0 to 1073741824, a duration such as .*, or null, got -1$/,
  ],
  [with_({ ahead: "soon" }), /^policy "fetch": ahead must be a whole number.*, got "soon"$/],
  [with_({ job: { queue: "x" } }), /^policy "fetch": unknown option "queue" of job/],
  [
    with_({ job: { priority: 40_000 } }),
    'policy "fetch": job: priority must be a whole number, -32768 to 32767, got 40000',
  ],
  [
    with_({ job: { maxAttempts: 0 } }),
    'policy "fetch": job: maxAttempts must be a whole number, 1 to 32767, got 0',
  ],
  [
    with_({ job: { flags: "slow" } }),
    'policy "fetch": job: flags must be an array of strings (1 to 1024 characters, without NUL), got "slow"',
  ],
  [
    with_({ job: { flags: ["dispatch_policy:7"] } }),
    'policy "fetch": job: flags must not begin with "dispatch_policy:", which is reserved, got "dispatch_policy:7"',
  ],
  [with_({ retries: "never" }), 'policy "fetch": retries must be "restage" or "bypass", got "never"'],
  [
    with_({ unmanaged: "allow" }),
    'policy "fetch": unmanaged must be "enforce", "run" or "reject", got "allow"',
  ],
  [
    with_({ breaker: { failures: 0, within: "1 minute", cooldown: "1 minute" } }),
    'policy "fetch": breaker: failures must be a whole number, 1 to 1073741824, got 0',
  ],
  [
    with_({ breaker: { failures: 1, within: 60, cooldown: "1 minute" } }),
    /breaker: within must be a duration .*, got 60/,
  ],
  [
    with_({ breaker: { failures: 1, within: "1 minute", cooldow: "1 minute" } }),
    'policy "fetch": unknown option "cooldow" of breaker: did you mean "cooldown"?',
  ],
  [
    with_({ retries: "bypass", refundAttempt: true }),
    /refundAttempt must be false if retries is "bypass", got true/,
  ],
  [with_({ backoff: "5 minutes" }), 'policy "fetch": backoff must be a function, got "5 minutes"'],
  [
    with_({ gates: [], whenBusy: "skip" }),
    'policy "fetch": whenBusy must be "wait" without gates, got "skip": it drops jobs that gates deny, and there are none',
  ],
  [
    with_({ gates: [], whenBusy: { delay: "30 seconds" } }),
    'policy "fetch": whenBusy must be "wait" without gates, got a delay: it postpones jobs that gates deny, and there are none',
  ],
  [with_({ whenBusy: "drop" }), 'policy "fetch": whenBusy must be "wait", "skip" or { delay }, got "drop"'],
  [
    with_({ gates: [concurrency({ max: 1 })], whenBusy: { delay: 30 } }),
    /whenBusy: delay must be a duration .*, 1 second or more, got 30/,
  ],
  [
    with_({ gates: [concurrency({ max: 1 })], whenBusy: { delay: "999 ms" } }),
    /whenBusy: delay must be a duration .*, 1 second or more, got "999 ms"/,
  ],
  [
    with_({ uniqueFor: "1 hour", retries: "bypass" }),
    'policy "fetch": uniqueFor must be left out if retries is "bypass", got "1 hour": a job that succeeds at its retry would not be remembered. Leave one of the two out',
  ],
  [
    with_({ gates: [concurrency({ max: 1 })], whenBusy: { after: "30 seconds" } }),
    /unknown option "after" of whenBusy \(known options: delay\)/,
  ],
  [
    with_({ debounce: { wait: "2 minutes", maxWait: "1 minute" } }),
    'policy "fetch": debounce: maxWait must not be shorter than wait ("2 minutes"), got "1 minute": raise it, or lower wait',
  ],
  [with_({ debounce: { wait: "5 seconds" } }), /debounce: maxWait is missing: it must be a duration/],
  [
    with_({ debounce: { wait: "0 ms", maxWait: "1 minute" } }),
    /debounce: wait must be .*longer than 0, got "0 ms"/,
  ],
  [
    with_({ whenRunning: "stop" }),
    'policy "fetch": whenRunning must be "keep", "cancel" or { cancel: true, minRun: "10 seconds" }, got "stop"',
  ],
  [with_({ whenRunning: { cancel: true } }), /whenRunning: minRun is missing: it must be a duration/],
  [
    with_({ whenRunning: { cancel: true, minRun: "25 days" } }),
    /whenRunning: minRun must be .*24 days at most, got "25 days"/,
  ],
  [with_({ whenRunning: { minRun: "1 second" } }), /whenRunning: cancel is missing: it must be true/],
  [
    with_({ whenRunning: { cancel: true, minrun: "1 second" } }),
    /unknown option "minrun" of whenRunning: did you mean "minRun"\?/,
  ],
  [
    with_({ order: "fifo" }),
    'policy "fetch": order must be "strict" or "deadline", or { deadline: a function of the context }, got "fifo"',
  ],
  [
    with_({ order: { deadline: "dueBy" } }),
    'policy "fetch": order: deadline must be a function, got "dueBy"',
  ],
  [with_({ order: { by: "deadline" } }), /unknown option "by" of order \(known options: deadline\)/],
  [
    with_({ order: "strict", retries: "bypass" }),
    'policy "fetch": retries must be "restage" if order is "strict", got "bypass": Graphile Worker would retry a job after later ones',
  ],
  [
    with_({ order: "strict", unmanaged: "run" }),
    'policy "fetch": unmanaged must be "enforce" or "reject" if order is "strict", got "run": such jobs would run beside others',
  ],
  [
    with_({ order: "strict", gates: [concurrency({ max: 1 })], whenBusy: "skip" }),
    'policy "fetch": whenBusy must be "wait" if order is "strict", got "skip": each job has to wait for the one before it',
  ],
  [
    with_({ order: "strict", gates: [concurrency({ max: 5 })] }),
    'policy "fetch": max of concurrency must be 0 or 1 if order is "strict", got 5: a partition runs one job at a time',
  ],
  [
    with_({ order: "strict", gates: [concurrency({ name: "strict_order", scope: "policy", max: 5 })] }),
    /the name "strict_order" is that of the gate that order: "strict" brings/,
  ],
  [
    with_({ load: { keep: "30 seconds" } }),
    'policy "fetch": load: keep must be a duration of 1 minute to 1 day, such as "1 hour", got "30 seconds"',
  ],
  [with_({ load: { keep: "2 days" } }), /load: keep must be a duration of 1 minute to 1 day/],
  [with_({ load: { for: "1 hour" } }), /unknown option "for" of load \(known options: keep\)/],
  [
    with_({ history: { keep: "30 seconds" } }),
    'policy "fetch": history: keep must be a duration of 1 minute to 1 year, such as "7 days", got "30 seconds"',
  ],
  [with_({ history: { keep: "400 days" } }), /history: keep must be a duration of 1 minute to 1 year/],
  [with_({ history: { failed: "1 day" } }), /unknown option "failed" of history \(known options: keep\)/],
  [with_({ version: -1 }), 'policy "fetch": version must be a whole number, 0 to 2147483647, got -1'],
  [with_({ version: "2" }), 'policy "fetch": version must be a whole number, 0 to 2147483647, got "2"'],
  [with_({ enabled: 1 }), 'policy "fetch": enabled must be true or false, got 1'],
  [
    with_({ tasks: [] }),
    'policy "fetch": tasks must be an array of at least one task identifier, got an array',
  ],
  [with_({ tasks: "a" }), 'policy "fetch": tasks must be an array of at least one task identifier, got "a"'],
  [with_({ tasks: ["a", "a"] }), 'policy "fetch": tasks must differ, got "a" twice'],
  [with_({ tasks: ["a", ""] }), /^policy "fetch": tasks\[1\] must be a non-empty string/],
  [
    with_({ tasks: ["dispatch_policy_tick"] }),
    'policy "fetch": tasks[0] must not be "dispatch_policy_tick": that task is what admits jobs',
  ],
];

for (const [index, [define, message]] of REFUSED.entries()) {
  test(`refused when declared (${index}): ${message}`, (t) => {
    const error = t.throws(define, { instanceOf: PolicyDefinitionError, message });
    t.is(error.code, "invalid_policy");
  });
}

test("an error thrown by the gates function is the cause", (t) => {
  const cause = new Error("boom");
  const gates = () => {
    throw cause;
  };
  t.is(t.throws(() => declare({ partitionBy: "x", gates })).cause, cause);
});
