// Why jobs wait.
import { CAP_KINDS, type CapKind } from "../gates/index.ts";

/**
 * What kind each reason is. `tokens`, `zero`, `cap`: a gate has no room. `ahead`: the workers have enough to do. `turn`:
 * others went first. `stop`: somebody or a breaker has stopped it. `order`: one job goes before all others. `job`: it is the
 * job's own.
 */
const KINDS_OF_OTHERS = {
  throttle_empty: "tokens",
  rate_zero: "zero",
  max_zero: "zero",
  ahead_full: "ahead",
  tick_budget: "turn",
  batch: "turn",
  paused: "stop",
  held: "stop",
  breaker_open: "stop",
  probing: "order",
  strict_order: "order",
  not_due: "job",
  quarantined: "job",
  waiting_key: "job",
} as const;

/** Why a job or partition waits, from a closed list. docs/operating.md explains each, under its own name. */
export type Reason = `${CapKind}_full` | keyof typeof KINDS_OF_OTHERS;

export type ReasonKind = "cap" | (typeof KINDS_OF_OTHERS)[keyof typeof KINDS_OF_OTHERS];

export const REASON_KINDS = {
  ...Object.fromEntries(CAP_KINDS.map((kind) => [`${kind}_full`, "cap"])),
  ...KINDS_OF_OTHERS,
} as Readonly<Record<Reason, ReasonKind>>;

export const REASONS = Object.keys(REASON_KINDS) as readonly Reason[];

export const STOPS = REASONS.filter((reason) => REASON_KINDS[reason] === "stop");
