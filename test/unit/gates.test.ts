import test from "ava";
import { PolicyDefinitionError } from "../../src/errors.ts";
import { adaptiveConcurrency, concurrency, type Gate, throttle } from "../../src/gates/index.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests pass what the types forbid
type Anything = any;

test("a gate of constants knows its values, as columns of the limiters table", (t) => {
  t.deepEqual(throttle({ rate: 10, per: "1 minute" }).values, { rate: 10, per: 60, burst: null });
  t.deepEqual(throttle({ rate: 0.5, per: "500 ms", burst: 3 }).values, { rate: 0.5, per: 0.5, burst: 3 });
  t.deepEqual(throttle({ rate: 3, per: "1 second", smooth: true }).values, {
    ...{ rate: 3, per: 1, burst: 1, smooth: true },
  });
  t.deepEqual(throttle({ rate: 3, per: "1 second", smooth: false }).values, { rate: 3, per: 1, burst: null });
  t.deepEqual(throttle({ rate: 3, per: "1 second", window: "sliding" }).values, {
    ...{ rate: 3, per: 1, burst: null },
    sliding: true,
  });
  const quota = throttle({ rate: 9, per: "1 month", window: "calendar", timeZone: "Africa/Cairo" });
  t.deepEqual(quota.values, { rate: 9, per: 2_592_000, burst: null, calendar: "month Africa/Cairo" });
  t.deepEqual(Object.keys(quota.overrides), ["rate"]);
  t.is(throttle({ rate: 9, per: "1 week", window: "calendar" }).values?.calendar, "week UTC");
  t.deepEqual(concurrency({ max: 5 }).values, { max: 5 });
  t.deepEqual(adaptiveConcurrency({ initialMax: 5, targetLagMs: 500 }).values, {
    initial_max: 5,
    target_lag_ms: 500,
    min: 1,
    max: null,
    ewma_alpha: 0.5,
    failure_decrease_factor: 0.5,
    overload_decrease_factor: 0.95,
  });
});

test("a gate with a function has no constant values and resolves each of them by the context", (t) => {
  const gate = throttle<{ rate: number; per: "1 minute"; burst: number }>({
    rate: (ctx) => ctx.rate,
    per: (ctx) => ctx.per,
    burst: (ctx) => ctx.burst,
  });
  t.is(gate.values, null);
  t.deepEqual(gate.constants, {});
  const quota = throttle<{ rate: number }>({ rate: (ctx) => ctx.rate, per: "1 day", window: "calendar" });
  t.deepEqual(quota.constants, { per: 86_400, burst: null, calendar: "day UTC" });
  t.deepEqual(quota.resolve({ rate: 7 }), { rate: 7, ...quota.constants });
  t.deepEqual(gate.resolve({ rate: 7, per: "1 minute", burst: 2 }), { rate: 7, per: 60, burst: 2 });
  const adaptive = adaptiveConcurrency<{ n: number }>({
    initialMax: (ctx) => ctx.n,
    targetLagMs: (ctx) => ctx.n * 100,
    max: (ctx) => ctx.n + 1,
  });
  t.like(adaptive.resolve({ n: 3 }), { initial_max: 3, target_lag_ms: 300, min: 1, max: 4 });
});

test("names default to the kind, scopes to the partition", (t) => {
  const gates: Gate<{ account: string }>[] = [
    throttle({ rate: 1, per: "1 second" }),
    concurrency({ max: 1, scope: "policy", name: undefined }),
    adaptiveConcurrency({ initialMax: 1, targetLagMs: 1, name: "lag", scope: (ctx) => ctx.account }),
  ];
  t.deepEqual(
    gates.map(({ kind, name, scope }) => [kind, name, scope]),
    [
      ["throttle", "throttle", "partition"],
      ["concurrency", "concurrency", "policy"],
      ["adaptive_concurrency", "lag", "key"],
    ],
  );
  t.true(gates.every((gate) => Object.isFrozen(gate)));
});

test("perWorker goes with each scope, and with a max of the context", (t) => {
  for (const scope of ["partition", "policy", () => "key"] as const) {
    const gate = concurrency({ max: (ctx: { max: number }) => ctx.max, scope, perWorker: true });
    t.deepEqual(gate.constants, { per_worker: true });
    t.deepEqual(gate.resolve({ max: 3 }), { max: 3, per_worker: true });
  }
  t.deepEqual(concurrency({ max: 2, perWorker: false }).values, { max: 2, per_worker: null });
  t.deepEqual(concurrency({ max: 2 }).values, { max: 2 });
});

test("the edges that are allowed", (t) => {
  t.notThrows(() => throttle({ rate: 0, per: "1 second" }));
  t.notThrows(() => throttle({ rate: -1, per: "1 second", burst: 0 }));
  t.notThrows(() => concurrency({ max: 0, name: "n".repeat(128) }));
  t.notThrows(() => concurrency({ max: 0, name: "😀".repeat(128) }));
  t.notThrows(() => adaptiveConcurrency({ initialMax: 3, min: 3, max: 3, targetLagMs: 0.5, ewmaAlpha: 1 }));
});

const DURATION =
  'a duration such as "30 seconds" (ms, seconds, minutes, hours, days), at most a million days, longer than 0';
const OR_FUNCTION = ", or a function of the context";
const PERIODS = '"1 minute", "1 hour", "1 day", "1 week" or "1 month" with window "calendar"';
const throttleWith = (more: object) => () => throttle({ rate: 1, per: "1 second", ...more } as Anything);
const concurrencyWith = (more: object) => () => concurrency({ max: 1, ...more } as Anything);
const adaptiveWith = (more: object) => () =>
  adaptiveConcurrency({ initialMax: 5, targetLagMs: 500, ...more } as Anything);

const REFUSED: [() => unknown, string][] = [
  [throttleWith({ bust: 3 }), 'unknown option "bust" of throttle: did you mean "burst"?'],
  [
    throttleWith({ zzzzzzzz: 3 }),
    'unknown option "zzzzzzzz" of throttle (known options: name, scope, rate, per, burst, window, timeZone, smooth, shadow)',
  ],
  [throttleWith({ smooth: 1 }), "throttle: smooth must be true or false, got 1"],
  [throttleWith({ smooth: true, burst: 2 }), "throttle: smooth means a burst of 1, leave one of the two out"],
  [throttleWith({ window: "fixed" }), 'throttle: window must be "sliding" or "calendar", got "fixed"'],
  [
    throttleWith({ window: "sliding", burst: 2 }),
    "throttle: a sliding window has rate tokens, leave burst out",
  ],
  [
    throttleWith({ window: "calendar", per: "1 day", burst: 2 }),
    "throttle: a calendar window has rate tokens, leave burst out",
  ],
  [
    throttleWith({ window: "calendar", per: "1 day", smooth: true }),
    "throttle: a calendar window has rate tokens, leave smooth out",
  ],
  [throttleWith({ window: "calendar", per: "2 days" }), `throttle: per must be ${PERIODS}, got "2 days"`],
  [
    throttleWith({ window: "calendar", per: () => "1 day" }),
    `throttle: per must be ${PERIODS}, got a function`,
  ],
  [throttleWith({ per: "1 week" }), `throttle: per must be ${DURATION}${OR_FUNCTION}, got "1 week"`],
  ...["Mars/Olympus_Mons", "CET", "+05:30", () => "UTC"].map((timeZone): [() => unknown, string] => [
    throttleWith({ window: "calendar", per: "1 day", timeZone }),
    'throttle: timeZone must be "UTC" or an area and a place, such as "America/New_York", got ' +
      (typeof timeZone === "string" ? `"${timeZone}"` : "a function"),
  ]),
  [throttleWith({ timeZone: "UTC" }), 'throttle: only window "calendar" has a time zone, leave timeZone out'],
  [
    throttleWith({ name: "all", window: "sliding", smooth: true }),
    'throttle "all": a sliding window has rate tokens, leave smooth out',
  ],
  [
    throttleWith({ rate: undefined }),
    `throttle: rate is missing: it must be a finite number (0, or 1e-12 to 1e12)${OR_FUNCTION}`,
  ],
  [
    throttleWith({ rate: Number.NaN }),
    `throttle: rate must be a finite number (0, or 1e-12 to 1e12)${OR_FUNCTION}, got NaN`,
  ],
  [
    throttleWith({ rate: "10" }),
    `throttle: rate must be a finite number (0, or 1e-12 to 1e12)${OR_FUNCTION}, got "10"`,
  ],
  [
    throttleWith({ rate: Number.POSITIVE_INFINITY }),
    `throttle: rate must be a finite number (0, or 1e-12 to 1e12)${OR_FUNCTION}, got Infinity`,
  ],
  [throttleWith({ per: 60 }), `throttle: per must be ${DURATION}${OR_FUNCTION}, got 60`],
  [throttleWith({ per: "1 minuet" }), `throttle: per must be ${DURATION}${OR_FUNCTION}, got "1 minuet"`],
  [
    throttleWith({ per: "0.0 seconds" }),
    `throttle: per must be ${DURATION}${OR_FUNCTION}, got "0.0 seconds"`,
  ],
  [
    throttleWith({ burst: -1 }),
    `throttle: burst must be a finite number, 0 or more (0, or 1e-12 to 1e12)${OR_FUNCTION}, got -1`,
  ],
  [
    throttleWith({ burst: null }),
    `throttle: burst must be a finite number, 0 or more (0, or 1e-12 to 1e12)${OR_FUNCTION}, got null`,
  ],
  [
    throttleWith({ name: "all", rate: null }),
    `throttle "all": rate must be a finite number (0, or 1e-12 to 1e12)${OR_FUNCTION}, got null`,
  ],
  [
    concurrencyWith({ max: -1 }),
    `concurrency: max must be a whole number, 0 to 2147483647${OR_FUNCTION}, got -1`,
  ],
  [
    concurrencyWith({ max: 1.5 }),
    `concurrency: max must be a whole number, 0 to 2147483647${OR_FUNCTION}, got 1.5`,
  ],
  [
    concurrencyWith({ limit: 1 }),
    'unknown option "limit" of concurrency (known options: name, scope, max, cost, perWorker, shadow)',
  ],
  [concurrencyWith({ perWorker: 2 }), "concurrency: perWorker must be true or false, got 2"],
  [
    concurrencyWith({ perWorkers: true }),
    'unknown option "perWorkers" of concurrency: did you mean "perWorker"?',
  ],
  [
    adaptiveWith({ perWorker: true }),
    'unknown option "perWorker" of adaptive_concurrency (known options: name, scope, initialMax, targetLagMs, min, max, ewmaAlpha, failureDecreaseFactor, overloadDecreaseFactor, shadow)',
  ],
  [
    concurrencyWith({ name: "" }),
    'name of concurrency must be a non-empty string of at most 128 characters without NUL, got ""',
  ],
  [
    concurrencyWith({ name: "a\0" }),
    'name of concurrency must be a non-empty string of at most 128 characters without NUL, got "a\\u0000"',
  ],
  [
    concurrencyWith({ name: "ahead" }),
    'name of concurrency must not be "ahead": that gate is the bound on jobs admitted ahead of the workers',
  ],
  [
    concurrencyWith({ scope: "tenant" }),
    'concurrency: scope must be "partition" or "policy" or a function of the context, got "tenant"',
  ],
  [
    concurrencyWith({ scope: null }),
    'concurrency: scope must be "partition" or "policy" or a function of the context, got null',
  ],
  [() => concurrency(undefined as Anything), "concurrency must be given an object of options, got undefined"],
  [
    adaptiveWith({ initialMax: 0 }),
    `adaptive_concurrency: initialMax must be a whole number, 1 to 2147483647${OR_FUNCTION}, got 0`,
  ],
  [
    adaptiveWith({ targetLagMs: 0 }),
    `adaptive_concurrency: targetLagMs must be a finite number above 0 (1e-12 to 1e12)${OR_FUNCTION}, got 0`,
  ],
  [
    adaptiveWith({ targetLagMs: "5 seconds" }),
    `adaptive_concurrency: targetLagMs must be a finite number above 0 (1e-12 to 1e12)${OR_FUNCTION}, got "5 seconds"`,
  ],
  [
    adaptiveWith({ min: 0 }),
    `adaptive_concurrency: min must be a whole number, 1 to 2147483647${OR_FUNCTION}, got 0`,
  ],
  [
    adaptiveWith({ min: 6 }),
    "adaptive_concurrency: min must be no more than initialMax, got min 6 and initialMax 5",
  ],
  [
    adaptiveWith({ min: 4, max: 3 }),
    "adaptive_concurrency: max must be no less than min, got max 3 and min 4",
  ],
  [
    adaptiveWith({ max: 3 }),
    "adaptive_concurrency: max must be no less than initialMax, got max 3 and initialMax 5",
  ],
  [
    adaptiveWith({ initialMax: () => 9, min: 4, max: 3 }),
    "adaptive_concurrency: max must be no less than min, got max 3 and min 4",
  ],
  [
    adaptiveWith({ ewmaAlpha: 0 }),
    "adaptive_concurrency: ewmaAlpha must be a number above 0 and at most 1, got 0",
  ],
  [
    adaptiveWith({ ewmaAlpha: 1.1 }),
    "adaptive_concurrency: ewmaAlpha must be a number above 0 and at most 1, got 1.1",
  ],
  [
    adaptiveWith({ ewmaAlpha: () => 0.5 }),
    "adaptive_concurrency: ewmaAlpha must be a number above 0 and at most 1, got a function",
  ],
  [
    adaptiveWith({ failureDecreaseFactor: 1 }),
    "adaptive_concurrency: failureDecreaseFactor must be a number above 0 and below 1, got 1",
  ],
  [
    adaptiveWith({ overloadDecreaseFactor: 0 }),
    "adaptive_concurrency: overloadDecreaseFactor must be a number above 0 and below 1, got 0",
  ],
  [
    adaptiveWith({ initial_max: 3 }),
    'unknown option "initial_max" of adaptive_concurrency: did you mean "initialMax"?',
  ],
];

for (const [index, [declare, message]] of REFUSED.entries()) {
  test(`refused when declared (${index}): ${message}`, (t) => {
    const error = t.throws(declare, { instanceOf: PolicyDefinitionError });
    t.is(error.message, message);
    t.is(error.code, "invalid_policy");
  });
}
