// A release must come of whatever a task throws: else its slot stays occupied until a sweep.
import test from "ava";
import type { Job, Logger } from "graphile-worker";
import { errorText } from "../../src/error-text.ts";
import { noEvents } from "../../src/events.ts";
import { definePolicy } from "../../src/policy/policy.ts";
import { BatchError } from "../../src/run/batch-parts.ts";
import { finishedJob } from "../../src/run/finished-job.ts";
import { RetryAfter, retryAfterIn } from "../../src/run/retry-after.ts";

const NO_TEXT = "Non error or error without message thrown.";
const fails = () => {
  throw new Error("it throws when it is read");
};
const withoutPrototype = Object.assign(Object.create(null), { code: 7 });

const THROWN: readonly (readonly [what: string, thrown: unknown, text: string])[] = [
  ["an error", new Error("oops"), "oops"],
  ["an error without a message", new TypeError(), "TypeError"],
  ["an error whose message is a number", Object.assign(new Error(), { message: 7 }), "7"],
  ["an error whose message throws", Object.defineProperty(new Error(), "message", { get: fails }), NO_TEXT],
  ["an object with a message", { message: "oops" }, "oops"],
  ["an object without a prototype", withoutPrototype, NO_TEXT],
  ["one with a message", Object.assign(Object.create(null), { message: "oops" }), "oops"],
  ["an object whose text throws", { toString: fails }, NO_TEXT],
  [
    "a proxy that throws when it is asked what it is",
    new Proxy({}, { getPrototypeOf: fails, has: fails }),
    NO_TEXT,
  ],
  ["undefined", undefined, "undefined"],
  ["null", null, "null"],
  ["a text", "oops", "oops"],
  ["an empty text", "", NO_TEXT],
  ["a symbol", Symbol("oops"), "Symbol(oops)"],
  ["a function", () => 7, "() => 7"],
];

const job = {
  ...{ id: "7", task_identifier: "p", attempts: 1, max_attempts: 1, revision: 0, key: null },
  ...{ payload: {}, priority: 0, run_at: new Date(), queue_name: null, flags: null },
} as unknown as Job;
const running = {
  ...{
    admission: "1",
    stagedId: "7",
    ownsSlot: true,
    lagMs: 0,
    startedAt: 0,
    settlement: { settled: undefined },
    signal: { cancelled: undefined, stopped: false, abort() {} },
  },
};

function finished(error: unknown, { last = true, backoff }: { last?: boolean; backoff?: () => never } = {}) {
  const policy = definePolicy("p", {
    partitionBy: "key",
    history: { keep: "1 day" },
    ...(backoff && { backoff }),
  });
  const said: string[] = [];
  const logger = { error: (message: string) => said.push(message) } as unknown as Logger;
  const of = { ...job, max_attempts: last ? 1 : 25 } as Job;
  return { ...finishedJob(of, { ...running, policy }, error, { logger, events: noEvents }), said };
}

for (const [what, thrown, text] of THROWN) {
  test(`${what} has a text`, (t) => {
    t.is(errorText(thrown), text);
  });
}

for (const [what, thrown, text] of THROWN.filter(([, thrown]) => thrown != null)) {
  test(`a job that throws ${what} has failed, with a text for the history`, (t) => {
    t.like(finished(thrown), { ok: false, retry: null, error: text });
    t.like(finished(thrown, { last: false }), { ok: false, retry: { attempt: 1, task: "p" } });
  });

  test(`a back-off that throws ${what} leaves the job to Graphile Worker's`, (t) => {
    const backoff = () => {
      throw thrown;
    };
    const { retry, said } = finished(new Error("its own"), { last: false, backoff });
    t.like(retry, { attempt: 1, task: "p" });
    t.is(said.length, 1);
  });
}

test("the history keeps the first line, in letters that PostgreSQL can store, and not too many", (t) => {
  t.is((finished(new Error("one\ntwo")) as { error?: string }).error, "one");
  t.is((finished(new Error("a\0b\ud800")) as { error?: string }).error, "a\ufffdb\ufffd");
  t.is((finished(new Error("x".repeat(5000))) as { error?: string }).error?.length, 1000);
});

test("a batch gets its attempt back if each part that failed says RetryAfter", (t) => {
  const policy = definePolicy("p", { partitionBy: "key", refundAttempt: true });
  const logger = { error: () => t.fail() } as unknown as Logger;
  const ended = (...errors: unknown[]) => {
    const failed = new BatchError(errors);
    const of = { ...running, policy, failed };
    return finishedJob(job, of, new Error(failed.message), { logger, events: noEvents }).retry;
  };
  const later = new RetryAfter("1 hour");
  t.like(ended(later, new Error("refused", { cause: later })), { refund: true });
  t.is(ended(later, new Error("its own fault")), null, "it was its last attempt");
});

test("an error that is its own cause, and a proxy that throws, are no RetryAfter", (t) => {
  const itself = new Error("itself");
  itself.cause = itself;
  const proxy = new Proxy(new Error("proxy"), {
    getPrototypeOf: () => {
      throw new Error("not yours");
    },
  });
  for (const thrown of [itself, proxy, undefined, { cause: new RetryAfter("1 hour") }])
    t.is(retryAfterIn(thrown), undefined);
});

test("a job without an error has succeeded, and RetryAfter says when to come back", (t) => {
  t.like(finished(null), { ok: true, retry: null });
  const { retry } = finished(new RetryAfter("1 hour"), { last: false });
  t.true((retry as { after: number }).after > 3590);
});
