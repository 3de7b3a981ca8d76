// Why jobs wait.
import { CAP_KINDS, type CapKind } from "../gates/index.ts";

/** What is known of a reason: its kind, and its name for people. In that `#` stands for the name of the gate. */
type Known = readonly [kind: string, title: string];

/**
 * What kind each reason is. `tokens`, `zero`, `cap`: a gate has no room, with `zero` until somebody raises its limit. `ahead`: the workers have enough to do. `turn`:
 * others went first. `stop`: somebody or a breaker has stopped it. `order`: one job goes before all others. `job`: it is the
 * job's own.
 */
const OTHERS = {
  throttle_empty: ["tokens", "# rate used up"],
  rate_zero: ["zero", "# rate is 0"],
  max_zero: ["zero", "# limit is 0"],
  cost_over_max: ["zero", "# limit below its cost"],
  ahead_full: ["ahead", "Workers busy"],
  tick_budget: ["turn", "Next pass"],
  batch: ["turn", "Next pass"],
  paused: ["stop", "Paused"],
  held: ["stop", "On hold"],
  breaker_open: ["stop", "Breaker open"],
  probing: ["order", "One job goes first"],
  strict_order: ["order", "Earlier job goes first"],
  not_due: ["job", "Not due yet"],
  older_run: ["job", "Older run ends first"],
  quarantined: ["job", "Refused, tried again"],
  waiting_key: ["job", "Partition not known yet"],
} as const satisfies Readonly<Record<string, Known>>;

type Other = keyof typeof OTHERS;

/** Why a job or partition waits, from a closed list. docs/operating.md explains each, under its own name. */
export type Reason = `${CapKind}_full` | Other;

export type ReasonKind = "cap" | (typeof OTHERS)[Other][0];

const ALL = {
  ...Object.fromEntries(CAP_KINDS.map((kind) => [`${kind}_full`, ["cap", "# limit full"]])),
  ...OTHERS,
} as Readonly<Record<Reason, readonly [kind: ReasonKind, title: string]>>;

export const REASONS = Object.keys(ALL) as readonly Reason[];

export const REASON_KINDS = Object.fromEntries(REASONS.map((reason) => [reason, ALL[reason][0]])) as Readonly<
  Record<Reason, ReasonKind>
>;

export const STOPS = REASONS.filter((reason) => REASON_KINDS[reason] === "stop");

/** A reason as people say it: "Account limit full". Without a gate: "Limit full". */
export function reasonTitle(reason: string, gate: string | null = null): string {
  const title = (ALL as Readonly<Record<string, Known>>)[reason]?.[1] ?? reason;
  const said = title.replace(/^# /, gate === null ? "" : `${gate} `);
  return said.charAt(0).toUpperCase() + said.slice(1);
}
