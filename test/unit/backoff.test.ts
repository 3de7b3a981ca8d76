import test from "ava";
import type { Job } from "graphile-worker";
import { durationMs, isDuration } from "../../src/duration.ts";
import { PolicyDefinitionError } from "../../src/errors.ts";
import { exponential, fixed, list, polynomial } from "../../src/policy/backoff.ts";
import { type BackoffFunction, definePolicy, resolveBackoff } from "../../src/policy/policy.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests pass what the types forbid
type Anything = any;
const attempts = [1, 2, 3, 4, 5];

test("fixed waits the same after every failure", (t) => {
  const backoff = fixed("5 minutes");
  t.deepEqual(
    attempts.map((attempt) => backoff(null, attempt)),
    Array(5).fill("5 minutes"),
  );
});

test("exponential waits base * factor^n, at most max, n from 0", (t) => {
  const waits = (options: Parameters<typeof exponential>[0]) =>
    [1, 2, 3, 4, 5, 6].map((attempt) => exponential(options)(null, attempt));
  const of = (...seconds: number[]) => seconds.map((wait) => `${wait} seconds`);
  t.deepEqual(waits({ base: "1 second" }), of(1, 2, 4, 8, 16, 32) as never);
  t.deepEqual(
    waits({ base: "10 seconds", factor: 3, max: "10 minutes" }),
    of(10, 30, 90, 270, 600, 600) as never,
  );
  t.deepEqual(waits({ base: "500 ms", factor: 1 }), of(0.5, 0.5, 0.5, 0.5, 0.5, 0.5) as never);
});

test("jitter is drawn from all of its range, below the wait and below max", (t) => {
  const RANGES = { full: [0, 8000], equal: [4000, 8000] } as const;
  for (const [jitter, [least, most]] of Object.entries(RANGES)) {
    const options = { base: "1 second", max: "8 seconds", jitter: jitter as "full" | "equal" } as const;
    const drawn = Array.from({ length: 2000 }, (_, n) => durationMs(exponential(options)(null, 4 + (n % 3))));
    const [shortest, longest] = [Math.min(...drawn), Math.max(...drawn)];
    const tenth = (most - least) / 10;
    t.true(shortest >= least && shortest < least + tenth, `${jitter}: ${shortest}`);
    t.true(longest <= most && longest > most - tenth, `${jitter}: ${longest}`);
  }
});

test("polynomial waits base and n^power seconds, n from 0", (t) => {
  const backoff = polynomial({ base: "30 seconds", power: 5 });
  t.deepEqual(
    attempts.map((attempt) => backoff(null, attempt)),
    ["30 seconds", "31 seconds", "62 seconds", "273 seconds", "1054 seconds"],
  );
});

test("a wait is always a duration, however long or short", (t) => {
  t.is(polynomial({ base: "0 seconds", power: 300 })(null, 1e9), "1000000000 seconds");
  t.is(exponential({ base: "1 ms", factor: 1e12 })(null, 1e9), "1000000000 seconds");
  t.is(exponential({ base: "1 ms", max: "1000000 days" })(null, 1e9), "1000000000 seconds");
  for (const base of ["0.000001 ms", "0.3333333 seconds", "1000000 days"] as const) {
    t.true(isDuration(polynomial({ base, power: 0.5 })(null, 4)));
    t.true(isDuration(exponential({ base, jitter: "full" })(null, 4)));
  }
});

test("list goes through its waits, then gives up", (t) => {
  const waits: ("1 second" | "2 hours")[] = ["1 second", "2 hours"];
  const backoff = list(waits);
  waits.length = 0;
  t.deepEqual(
    [1, 2, 3, 4].map((attempt) => backoff(null, attempt)),
    ["1 second", "2 hours", false, false],
  );
});

const REFUSED: [() => unknown, RegExp][] = [
  [() => fixed(30 as Anything), /^fixed must be a duration such as "30 seconds" .*, got 30$/],
  [() => fixed("soon" as Anything), /^fixed must be a duration .*, got "soon"$/],
  [() => list([]), /^list must be an array of at least one duration, got an array$/],
  [() => list("1 second" as Anything), /^list must be an array .*, got "1 second"$/],
  [() => list(["1 second", 3 as Anything]), /^list: wait 2 must be a duration .*, got 3$/],
  [() => fixed(undefined as Anything), /^fixed is missing: it must be a duration /],
  [() => polynomial({ base: 30, power: 5 } as Anything), /^polynomial: base must be a duration .*, got 30$/],
  [() => polynomial({ base: "1 second" } as Anything), /^polynomial: power is missing: it must be /],
  [() => polynomial({ base: "1 second", power: -1 }), /^polynomial: power must be .* 0 or more .*, got -1$/],
  [
    () => polynomial({ base: "1 second", pwer: 2 } as Anything),
    /^unknown option "pwer" of polynomial: did you mean "power"\?$/,
  ],
  [() => exponential({ base: "0 seconds" }), /^exponential: base must be .* longer than 0, got "0 seconds"$/],
  [() => exponential({ base: "1 second", power: 5 } as Anything), /^unknown option "power" of exponential/],
  [
    () => exponential({ base: "1 second", factor: 0.5 }),
    /^exponential: factor must be a number, 1 to 1e12, got 0\.5$/,
  ],
  [() => exponential({ base: "1 second", factor: Number.NaN }), /^exponential: factor must be .*, got NaN$/],
  [() => exponential({ base: "1 second", max: 60 as Anything }), /^exponential: max must be .*, got 60$/],
  [
    () => exponential({ base: "1 second", jitter: true as Anything }),
    /^exponential: jitter must be "full" or "equal", got true$/,
  ],
  [
    () => exponential(undefined as Anything),
    /^exponential must be given an object of options, got undefined$/,
  ],
];

for (const [declare, message] of REFUSED) {
  test(`refused when declared: ${message.source}`, (t) => {
    t.throws(declare, { instanceOf: PolicyDefinitionError, message });
  });
}

const job = { id: "1", attempts: 2 } as Job;
const answering = (backoff?: unknown) =>
  definePolicy("fetch", { partitionBy: "host", backoff: backoff as BackoffFunction | undefined });

test("a policy's backoff is asked with error, attempt and job", (t) => {
  const failure = new Error("503");
  const seen: unknown[] = [];
  const policy = answering((...given: unknown[]) => {
    seen.push(given);
    return { after: "1.5 seconds", priority: 3, partition: "slow" };
  });
  t.deepEqual(resolveBackoff(policy, failure, 2, job), { afterMs: 1500, priority: 3, partition: "slow" });
  t.deepEqual(seen, [[failure, 2, job]]);
});

test("a policy's backoff answers with a duration, false, or is not there", (t) => {
  t.deepEqual(
    resolveBackoff(
      answering(() => "2 minutes"),
      null,
      1,
      job,
    ),
    { afterMs: 120_000 },
  );
  t.deepEqual(
    resolveBackoff(
      answering(() => ({ after: "0 seconds", priority: undefined })),
      null,
      1,
      job,
    ),
    { afterMs: 0 },
  );
  t.is(
    resolveBackoff(
      answering(() => false),
      null,
      1,
      job,
    ),
    false,
  );
  t.is(resolveBackoff(answering(), null, 1, job), null);
});

const BAD_ANSWERS: [unknown, RegExp][] = [
  [30, /^policy "fetch": backoff's answer must be a duration .*, \{ after \}, or false, got 30$/],
  [undefined, /^policy "fetch": backoff's answer is missing/],
  [true, /got true$/],
  [{}, /^policy "fetch": backoff's answer: after is missing/],
  [
    { after: "1 second", prioriy: 1 },
    /unknown option "prioriy" of backoff's answer: did you mean "priority"\?$/,
  ],
  [
    { after: "1 second", priority: 1e6 },
    /backoff's answer: priority must be a whole number, -32768 to 32767, got 1000000$/,
  ],
  [
    { after: "1 second", partition: null },
    /backoff's answer: partition must give a string or a finite number, got null$/,
  ],
];

for (const [answer, message] of BAD_ANSWERS) {
  test(`an answer that is no back-off: ${JSON.stringify(answer)}`, (t) => {
    t.throws(
      () =>
        resolveBackoff(
          answering(() => answer),
          null,
          1,
          job,
        ),
      { instanceOf: PolicyDefinitionError, message },
    );
  });
}

test("a backoff that throws is named, with what it threw as the cause", (t) => {
  const cause = new Error("boom");
  const policy = answering(() => {
    throw cause;
  });
  const error = t.throws(() => resolveBackoff(policy, null, 1, job), { instanceOf: PolicyDefinitionError });
  t.is(error.message, 'policy "fetch": backoff threw: boom');
  t.is(error.cause, cause);
});
