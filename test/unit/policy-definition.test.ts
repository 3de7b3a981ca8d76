import test from "ava";
import { concurrency, throttle } from "../../src/gates/index.ts";
import { definePolicy, definitionHash, policyDefinition } from "../../src/policy/policy.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests pass what the types forbid
type Anything = any;
const hash = (options: object): string =>
  definitionHash(policyDefinition(definePolicy("fetch", { partitionBy: "host", ...options } as Anything)));

test("the hash is the same for the same declaration, whatever the order of keys", (t) => {
  t.regex(hash({}), /^[0-9a-f]{64}$/);
  t.is(hash({ weight: 2, cost: 3 }), hash({ cost: 3, weight: 2 }));
  t.is(hash({ job: { priority: 1, maxAttempts: 2 } }), hash({ job: { maxAttempts: 2, priority: 1 } }));
  t.is(hash({ weight: 1, gates: [] }), hash({}));
});

test("the hash survives the database", (t) => {
  const definition = policyDefinition(
    definePolicy("fetch", { partitionBy: "host", gates: [concurrency({ max: 3 })], fairness: null }),
  );
  t.is(definitionHash(JSON.parse(JSON.stringify(definition))), definitionHash(definition));
});

const CHANGES: Record<string, object> = {
  version: { version: 1 },
  enabled: { enabled: false },
  tasks: { tasks: ["other"] },
  "a gate": { gates: [concurrency({ max: 1 })] },
  "a gate's value": { gates: [concurrency({ max: 2 })] },
  "a gate's function": { gates: [concurrency({ max: () => 2 })] },
  "the text of a gate's function": { gates: [concurrency({ max: () => 3 })] },
  "a constant beside a gate's function": { gates: [throttle({ rate: () => 2, per: "1 minute" })] },
  "the value of a constant beside a gate's function": { gates: [throttle({ rate: () => 2, per: "1 hour" })] },
  "the time zone of a gate": {
    gates: [throttle({ rate: () => 2, per: "1 day", window: "calendar", timeZone: "Africa/Cairo" })],
  },
  "a gate's name": { gates: [concurrency({ max: 1, name: "other" })] },
  "a gate's scope": { gates: [concurrency({ max: 1, scope: "policy" })] },
  "a scope function": { gates: [concurrency({ max: 1, scope: () => "a" })] },
  "the text of a scope function": { gates: [concurrency({ max: 1, scope: () => "b" })] },
  partitionBy: { partitionBy: "other" },
  context: { context: () => ({ a: 1 }) },
  "the text of context": { context: () => ({ a: 2 }) },
  weight: { weight: 2 },
  cost: { cost: 2 },
  fairness: { fairness: null },
  "half-life": { fairness: { halfLife: "2 minutes" } },
  "fairness by work": { fairness: { by: "work" } },
  budget: { tickAdmissionBudget: 1 },
  retries: { retries: "bypass" },
  unmanaged: { unmanaged: "run" },
  maxPending: { maxPending: { partition: 3 } },
  "maxPending of the policy": { maxPending: { policy: 3 } },
  "maxPending: whenFull": { maxPending: { partition: 3, whenFull: "drop_newest" } },
  whenBusy: { gates: [concurrency({ max: 1 })], whenBusy: "skip" },
  "a delay as whenBusy": { gates: [concurrency({ max: 1 })], whenBusy: { delay: "30 seconds" } },
  "whenBusy: delay": { gates: [concurrency({ max: 1 })], whenBusy: { delay: "1 minute" } },
  "strict order": { order: "strict" },
  "order by deadlines": { order: "deadline" },
  "the text of a deadline": { order: { deadline: () => null } },
  expiresAfter: { expiresAfter: "1 hour" },
  "the time of expiresAfter": { expiresAfter: "2 hours" },
  debounce: { debounce: { wait: "5 seconds", maxWait: "1 minute" } },
  "debounce: maxWait": { debounce: { wait: "5 seconds", maxWait: "2 minutes" } },
  whenRunning: { whenRunning: "cancel" },
  "whenRunning: minRun": { whenRunning: { cancel: true, minRun: "1 second" } },
  uniqueFor: { uniqueFor: "1 hour" },
  "the time of uniqueFor": { uniqueFor: "2 hours" },
  load: { load: { keep: "1 hour" } },
  "the load's time": { load: { keep: "2 hours" } },
  history: { history: { keep: "1 hour" } },
  "the history's time": { history: { keep: "2 hours" } },
  breaker: { breaker: { failures: 3, within: "1 minute", cooldown: "10 seconds" } },
  "the breaker's cooldown": { breaker: { failures: 3, within: "1 minute", cooldown: "20 seconds" } },
  refundAttempt: { refundAttempt: true },
  job: { job: { priority: 1 } },
};

test("the hash tells every change apart", (t) => {
  const hashes = [hash({}), ...Object.values(CHANGES).map(hash)];
  t.is(new Set(hashes).size, hashes.length);
});

test("the order of gates matters", (t) => {
  const a = concurrency({ name: "a", max: 1 });
  const b = concurrency({ name: "b", max: 1 });
  t.not(hash({ gates: [a, b] }), hash({ gates: [b, a] }));
});

test("a back-off is no part of what is stored", (t) => {
  t.is(hash({ backoff: () => "1 second" }), hash({}));
});
