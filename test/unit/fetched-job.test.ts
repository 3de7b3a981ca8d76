// Whether a fetched job is believed to be as it was admitted, by its row alone.
import test from "ava";
import type { Job } from "graphile-worker";
import { isAsAdmitted, type Ticket, ticketOf, traceOf } from "../../src/run/fetched-job.ts";

const AT = Date.UTC(2026, 10, 23, 2, 19, 55, 378);
const flagAt = (micros: number) => `dispatch_policy:1000000000000001@${micros}#221ef509`;

/** A job in its first attempt that was admitted at {@link AT}. */
const admitted = {
  attempts: 1,
  last_error: null,
  updated_at: new Date(AT),
  flags: { mine: true, [flagAt(AT * 1000)]: true },
} as unknown as Job;

function isBelieved(changes: object): boolean {
  const job = { ...admitted, ...changes } as Job;
  const ticket = ticketOf(job);
  return ticket !== null && isAsAdmitted(job, ticket);
}

const CASES: readonly (readonly [what: string, changes: object, believed: boolean])[] = [
  ["updated when it was admitted", {}, true],
  ["updated when it was admitted, in microseconds", { flags: { [flagAt(AT * 1000 + 999)]: true } }, true],
  ["updated then, its time read as a text", { updated_at: "2026-11-23 02:19:55.378+00" }, true],
  ["updated a millisecond later", { updated_at: new Date(AT + 1) }, false],
  ["updated a millisecond before", { updated_at: new Date(AT - 1) }, false],
  ["in its second attempt", { attempts: 2 }, false],
  ["with an error", { last_error: "oops" }, false],
  ["with a time that nobody can read", { updated_at: "23.11.2026 02:19:55.378 UTC" }, false],
  ["with the flag of another admission", { flags: { [flagAt((AT - 60_000) * 1000)]: true } }, false],
  ["with a flag of the application's alone", { flags: { mine: true } }, false],
  ["without flags", { flags: null }, false],
];

for (const [what, changes, believed] of CASES) {
  test(`a job ${what} is ${believed ? "" : "not "}believed`, (t) => {
    t.is(isBelieved(changes), believed);
  });
}

test("a ticket of a job with a key has a mark as well", (t) => {
  const flags = { [`${flagAt(AT * 1000)}.8ce4b16b`]: true };
  t.is(ticketOf({ ...admitted, flags } as unknown as Job)?.mark, "221ef509");
});

test("a ticket of an earlier release has no mark, and is believed all the same", (t) => {
  const ticket: Ticket = { stagedId: "7", admission: String(AT * 1000), mark: null };
  t.deepEqual(ticketOf({ ...admitted, flags: { [`dispatch_policy:7@${AT * 1000}`]: true } }), ticket);
  t.true(isAsAdmitted(admitted, ticket));
});

const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const STAGED = AT - 5000;

/** The trace of a job that has this after the mark of its partition. */
function traceAfter(rest: string) {
  const flags = { [`${flagAt(AT * 1000)}${rest}`]: true };
  const job = { ...admitted, flags } as unknown as Job;
  return { believed: isBelieved({ flags }), trace: traceOf(job) };
}

test("a traced job's flag has its trace context and its times, with a key or without", (t) => {
  const stagedAt = new Date(STAGED);
  const trace = { traceparent: PARENT, stagedAt, dueAt: null };
  t.deepEqual(traceAfter(`...${PARENT}.${STAGED}000`), { believed: true, trace });
  t.deepEqual(traceAfter(`.8ce4b16b.${AT}000.${PARENT}.${STAGED}000`), { believed: true, trace });
  const dueAt = new Date(STAGED + 1000);
  t.deepEqual(traceAfter(`...${PARENT}.${STAGED}000.${STAGED + 1000}000`).trace, { ...trace, dueAt });
});

for (const rest of [
  "",
  `.8ce4b16b.${AT}000`,
  `...${PARENT}`,
  `...nonsense.${STAGED}000`,
  `...${PARENT.toUpperCase()}.${STAGED}000`,
  `...${PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0".repeat(32))}.${STAGED}000`,
  `...${PARENT.replace("b7ad6b7169203331", "0".repeat(16))}.${STAGED}000`,
]) {
  test(`a flag with "${rest}" has no trace, and is believed`, (t) => {
    t.deepEqual(traceAfter(rest), { believed: true, trace: null });
  });
}
