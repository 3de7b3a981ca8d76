// Engines whose arithmetic is wrong in one place each. A model check that lets one of them pass is too weak.
import type { Queryable } from "../helpers/engine.ts";
import type { CaseOptions } from "./cases.ts";

/** What it takes: an operator who admits past the gates, holds for probes, or overlapping scopes, where slots are kept. */
export interface Mutant extends CaseOptions {
  readonly of: string;
  readonly from: RegExp;
  readonly to: string;
  /** The case of seed 1 that shows it first: tried before the others. */
  readonly shownBy: number;
  /** What the check says of it. */
  readonly shows: RegExp;
}

const ADMITS = /jobs admitted: the engine says|wait although they could go|still moves after/;
const OVER = /in flight: \d+, at most/;

export const MUTANTS = {
  "a shared cap takes one job too many": {
    shownBy: 1,
    of: "_rank",
    from: /r\.rank > r\.slots/g,
    to: "r.rank > r.slots + 1",
    shows: OVER,
  },
  "the budget takes the largest virtual times": {
    shownBy: 22,
    of: "_rank",
    from: /order by b\.vt, b\.priority/,
    to: "order by b.vt desc, b.priority",
    shows: /jobs admitted|the first jobs of/,
  },
  "weights count for nothing": {
    shownBy: 31,
    of: "_rank",
    from: /\(p\.decayed \+ s\.pos\) \/ p\.weight/,
    to: "(p.decayed + s.pos)",
    shows: ADMITS,
  },
  "the budget is exceeded by one": {
    shownBy: 14,
    of: "_rank",
    from: /limit \(p_policy\)\.admission_budget\b/,
    to: "limit (p_policy).admission_budget + 1",
    shows: /by the budget: \d+, at most/,
  },
  "what a narrow scope refuses takes from a broad one all the same": {
    shownBy: 104,
    of: "_rank",
    from: /from (narrow|keyed) c2 join unnest\(p_uses\) u/g,
    to: "from cand c2 join unnest(p_uses) u",
    shows: ADMITS,
  },
  "a job that costs nothing goes at rate zero": {
    shownBy: 69,
    of: "_uses",
    from: /when l\.rate <= 0 then 0/,
    to: "",
    shows: /at rate 0|jobs admitted/,
  },
  "a job costs one token, whatever its cost": {
    shownBy: 4,
    of: "_put_in_flight",
    from: /sum\(h\.cost - /,
    to: "sum(1 - ",
    shows: /tokens: the engine says/,
  },
  "the policy's scope is not charged": {
    shownBy: 4,
    of: "_charge_limiters",
    from: /in_flight = l\.in_flight \+ case when l\.by_tokens then 0/,
    to: "in_flight = l.in_flight + case when l.by_tokens or l.breadth = 2 then 0",
    shows: /in flight: the engine says/,
  },
  "a bucket fills past its capacity": {
    shownBy: 30,
    of: "_throttle_tokens",
    from: /[\w."]+_throttle_capacity\(numbers\)/,
    to: "1e9",
    shows: /tokens: the engine says|tokens taken|jobs admitted/,
  },
  "a smooth bucket makes up for a whole second": {
    shownBy: 86,
    of: "_throttle_tokens",
    from: /least\(greatest\(\(numbers\)\.rate, 0\) \/ \(numbers\)\.per \* 0\.25, 0\.9\)/,
    to: "(numbers).rate / (numbers).per",
    shows: /tokens: the engine says|tokens taken|jobs admitted/,
  },
  "a bucket fills twice for the same seconds": {
    shownBy: 8,
    of: "_charge_limiters",
    from: /[\w."]+_throttle_filled_at\(l\.refilled_at, p_now\)/,
    to: "l.refilled_at",
    shows: /tokens: the engine says/,
  },
  "a rate counts for the time before it": {
    shownBy: 1108,
    of: "_override_id_at",
    from: /o\.began_at <= p_at and p_at < o\.until_at/,
    to: "o.began_at <= p_now and p_now < o.until_at",
    shows: /tokens|jobs admitted|wait although they could go/,
  },
  "an end that nobody saw moves an adaptive limit": {
    shownBy: 59,
    of: "_adapt_limiters",
    from: / and f\.ok is not null/,
    to: "",
    shows: /learnt limit: the engine says/,
  },
  "a clock that goes back takes tokens away": {
    shownBy: 64,
    of: "_throttle_tokens",
    from: /greatest\(extract\(epoch from now - refilled_at\)::float8, 0\)/,
    to: "extract(epoch from now - refilled_at)::float8",
    shows: /tokens: the engine says|jobs admitted/,
  },
  "a job dearer than its bucket never goes": {
    shownBy: 81,
    of: "_rank",
    from: /or \(c\.pos = 1 and [\w."]+_lets_through\(c\.unfilled_bucket, 'Infinity', c\.cost\)\)/,
    to: "",
    shows: ADMITS,
  },
  "a failure does not shrink an adaptive limit": {
    shownBy: 14,
    of: "_adaptive_observe",
    from: /v_current := floor\(v_current \* v_factor\)::int;/,
    to: "",
    shows: /learnt limit/,
  },
  "admits never decay": {
    shownBy: 8,
    of: "_decayed",
    from: /admits \* exp\([\s\S]*?, -500\)\)/,
    to: "admits",
    shows: /decayed admits/,
  },
  "a job that ends settles nothing": {
    shownBy: 30,
    of: "_route_work",
    from: /o\.work\s*\+/,
    to: "0 +",
    shows: /decayed admits/,
  },
  "the work of a job is no share of its weight": {
    shownBy: 65,
    of: "_offers",
    from: /p\.weight \/ e\.work as weight/,
    to: "p.weight as weight",
    shows: ADMITS,
  },
  "a cap has no room, because it has no tokens": {
    shownBy: 23,
    of: "_lacks",
    from: /case when l\.tokens is not null then l\.tokens_left end/,
    to: "coalesce(l.tokens_left, 0)",
    shows: /wait although they could go|jobs admitted/,
  },
  "a forced admission takes more tokens than there are": {
    shownBy: 9,
    of: "_left_after",
    from: /greatest\(l\.tokens - coalesce\(n\.cost, 0\), least\(l\.tokens, 0\)\)/,
    to: "l.tokens - coalesce(n.cost, 0)",
    forced: true,
    shows: /tokens: the engine says/,
  },
  "partitions are claimed by their age": {
    shownBy: 131,
    of: "_claim",
    from: /order by c\.fair_key, c\.eligible_at limit p_claim/,
    to: "order by c.eligible_at limit p_claim",
    shows: /was claimed before one of/,
  },
  "a weight counts for nothing in the order of claims": {
    shownBy: 1,
    of: "_fair_key",
    from: /\) \/ weight end/,
    to: ") end",
    shows: /fair key of|was claimed before one of/,
  },
  "who has waited for longest is ranked as all others": {
    shownBy: 31,
    of: "_rank",
    from: /when p\.goes_first and s\.pos = 1 then '-Infinity'/,
    to: "",
    shows: ADMITS,
  },
  "who has not waited for long goes before its turn": {
    shownBy: 193,
    of: "_long_since",
    from: /10 seconds/,
    to: "0 seconds",
    shows: /goes before its turn|was claimed before one of/,
  },
  "after a hold all jobs go at once": {
    shownBy: 72,
    of: "_offers",
    from: /case when p\.probing then case when p\.probe_job_id is null then 1 else 0 end end/,
    to: "null",
    held: true,
    shows: ADMITS,
  },
  "a slot that is kept for too long makes room for nobody": {
    shownBy: 174,
    of: "_charge_limiters",
    from: /least\(l\.wake_at, w\.wake_at, k\.until\)/,
    to: "least(l.wake_at, w.wake_at)",
    overlapping: true,
    keeping: true,
    shows: ADMITS,
  },
  "a slot stays kept for a partition after its time": {
    shownBy: 121,
    of: "_limiter_left",
    from: /case when l\.reserved_until > p_now then l\.reserved_for end as reserved_for/,
    to: "l.reserved_for",
    overlapping: true,
    keeping: true,
    shows: ADMITS,
  },
  "a pass takes jobs, and their partition counts them as before": {
    shownBy: 1,
    of: "_mark_partitions",
    from: /staged = p\.staged - s\.gone/,
    to: "staged = p.staged",
    shows: /count of staged jobs/,
  },
  "a limit of every key goes before one of a context": {
    shownBy: 2750,
    of: "_override_now",
    from: /o\.rank, o\.id desc/,
    to: "o.rank = 2, o.rank, o.id desc",
    byContext: true,
    shows: ADMITS,
  },
  "a bucket gains by its new context for the time before": {
    shownBy: 272,
    of: "_contexts_before",
    from: /return \(/,
    to: "return null; return (",
    byContext: true,
    shows: /tokens: the engine says|jobs admitted|learnt limit/,
  },
  "a calendar window begins a moment after its beginning": {
    shownBy: 2,
    of: "_window_seconds",
    from: / \+ 1e-6/,
    to: "",
    calendar: true,
    shows: /tokens: the engine says|tokens taken|jobs admitted/,
  },
  "a job expires a second late": {
    shownBy: 70,
    of: "_expire",
    from: /s\.expires_at <= p_now/g,
    to: "s.expires_at <= p_now - interval '1 second'",
    expiring: true,
    shows:
      /jobs staged: the engine says|jobs admitted|the first jobs of|wait although they could go|still moves after/,
  },
  "jobs that were put off together are due together": {
    shownBy: 1,
    of: "_delay_denied",
    from: /p\.place \* v_delay/,
    to: "0 * v_delay",
    delaying: true,
    shows: /when \d+ is due: the engine says/,
  },
  "jobs that wait for their turn are put off": {
    shownBy: 1,
    of: "_lock_denied",
    from: /q\.denied_reason in \(/,
    to: "q.denied_reason in ('batch', 'tick_budget', ",
    delaying: true,
    shows: /when \d+ is due: the engine says/,
  },
  "a partition whose jobs were put off is not looked at again": {
    shownBy: 71,
    of: "_delay_denied",
    from: /set denied_until = '-infinity', blocked_on = null/,
    to: "set denied_until = q.denied_until",
    delaying: true,
    shows: /wait although they could go|when \d+ is due: the engine says/,
  },
  "in strict order a job passes one that waits for its retry": {
    shownBy: 27,
    of: "_waiting_heads",
    from: /s\.sort_at = '-infinity' order by/,
    to: "false order by",
    strict: true,
    shows: /was not claimed, and|jobs admitted|the first jobs of/,
  },
  "in strict order a retry goes behind those that came meanwhile": {
    shownBy: 27,
    of: "_retry",
    from: /'-infinity'::timestamptz when 'deadline'/,
    to: "null::timestamptz when 'deadline'",
    strict: true,
    shows: /was not claimed, and|jobs admitted|the first jobs of/,
  },
  "a job with a late deadline goes before an earlier one": {
    shownBy: 1,
    of: "_next_in_order",
    from: /order by s\.sort_at, s\.id/,
    to: "order by s.sort_at desc, s.id",
    deadlines: true,
    shows: /jobs admitted|the first jobs of/,
  },
  "a retry loses its deadline": {
    shownBy: 80,
    of: "_retry",
    from: /when 'deadline' then i\.sort_at end/,
    to: "end",
    deadlines: true,
    shows: /jobs admitted|the first jobs of/,
  },
  "a shadow gate holds jobs back": {
    shownBy: 2,
    of: "_limiter_left",
    from: /case when e\.is_shadow then 2147483647 else e\.slots_now end/,
    to: "e.slots_now",
    shadow: true,
    shows: /jobs admitted|wait although they could go/,
  },
  "a shadow bucket goes below empty": {
    shownBy: 3,
    of: "_left_after",
    from: /l\.shadow_tokens - coalesce\(\([\s\S]*?\), 0\)/,
    to: "l.shadow_tokens - coalesce(n.cost, 0)",
    shadow: true,
    shows: /tokens: the engine says|would-be denials/,
  },
  "a run that cost less gets back all that it has paid": {
    shownBy: 114,
    of: "_settle",
    from: /greatest\(c\.cost - c\.paid, /,
    to: "greatest(case when c.cost < c.paid then -c.paid else c.cost - c.paid end, ",
    settling: true,
    shows: /tokens: the engine says/,
  },
  "the debt of a settled job has no end": {
    shownBy: 83,
    of: "_lowest_tokens",
    from: /-greatest\(/,
    to: "-1e9 - greatest(",
    settling: true,
    shows: /tokens: the engine says/,
  },
  "a throttle returns what was paid under other limits": {
    shownBy: 75,
    of: "_settle",
    from: / or q\.limits_since > c\.since/,
    to: "",
    settling: true,
    shows: /tokens: the engine says/,
  },
  "a shadow gate returns what it has not charged": {
    shownBy: 70,
    of: "_settle",
    from: / or \(l\.numbers\)\.shadow is true/,
    to: "",
    settling: true,
    shadow: true,
    shows: /tokens: the engine says/,
  },
  "who waits for a limiter is never woken": {
    shownBy: 51,
    of: "_wake",
    from: /v_ticked := /,
    to: "return 0; v_ticked := ",
    shows: /wait although they could go/,
  },
  "a slot is handed on before the arrivals are routed": {
    shownBy: 190,
    of: "_hand_on",
    from: /and not exists \(select from "dispatch_policy"\._private_arrivals a where a\.policy = p\.name\)/,
    to: "",
    handing: true,
    shows: /the first jobs of|jobs admitted/,
  },
  "a slot that is left to the next pass is forgotten": {
    shownBy: 190,
    of: "_hand_on",
    from: /where l\.id = any\(v_left\);/,
    to: "where false;",
    handing: true,
    shows: /wait although they could go/,
  },
} as const satisfies Record<string, Mutant>;

export type MutantName = keyof typeof MUTANTS;

export async function plant(database: Queryable, name: MutantName): Promise<void> {
  const { of, from, to } = MUTANTS[name];
  const { rows } = await database.query("select pg_get_functiondef($1::regproc) as text", [
    `dispatch_policy.${of}`,
  ]);
  const sound: string = rows[0].text;
  const wrong = sound.replace(from, to);
  if (wrong === sound) throw new Error(`Nothing to plant "${name}" in: ${of} has changed`);
  await database.query(wrong);
}
