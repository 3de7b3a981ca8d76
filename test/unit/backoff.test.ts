import test from "ava";
import type { Job } from "graphile-worker";
import { isDuration } from "../../src/duration.ts";
import { PolicyDefinitionError } from "../../src/errors.ts";
import { exponential, fixed, list } from "../../src/policy/backoff.ts";
import { type BackoffFunction, definePolicy, resolveBackoff } from "../../src/policy/policy.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests hand over what the types forbid
type Anything = any;
const attempts = [1, 2, 3, 4, 5];

test("fixed waits the same after every failure", (t) => {
  const backoff = fixed("5 minutes");
  t.deepEqual(
    attempts.map((attempt) => backoff(null, attempt)),
    Array(5).fill("5 minutes"),
  );
});

test("exponential waits base + n^power seconds, n from 0", (t) => {
  const backoff = exponential({ base: 30, power: 5 });
  t.deepEqual(
    attempts.map((attempt) => backoff(null, attempt)),
    ["30 seconds", "31 seconds", "62 seconds", "273 seconds", "1054 seconds"],
  );
});

test("exponential always gives a duration, however long or short", (t) => {
  t.is(exponential({ base: 0, power: 300 })(null, 1e9), "1000000000 seconds");
  for (const base of [1e-9, 0.0001, 1 / 3, 1e300])
    t.true(isDuration(exponential({ base, power: 0.5 })(null, 4)));
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
  [() => list([]), /^list must be given an array of at least one duration, got \[\]$/],
  [() => list("1 second" as Anything), /^list must be given an array .*, got "1 second"$/],
  [() => list(["1 second", 3 as Anything]), /^list: wait 2 must be a duration .*, got 3$/],
  [
    () => exponential({ base: -1, power: 5 }),
    /^exponential: base must be a finite number, 0 or more, got -1$/,
  ],
  [() => exponential({ base: 1 } as Anything), /^exponential: power must be .*, got undefined$/],
  [() => exponential({ base: 1, power: Number.NaN }), /^exponential: power must be .*, got NaN$/],
  [
    () => exponential({ base: 1, pwer: 2 } as Anything),
    /^unknown option "pwer" of exponential: did you mean "power"\?$/,
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
