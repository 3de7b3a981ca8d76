import type { Reason } from "../../../index.ts";
import type { Answer, ExplainedGate } from "../../../operate/explain.ts";
import { STOPS } from "../../../policy/reasons.ts";
import { expectedTimes } from "../../parts/explanation.ts";
import type { Markup } from "../../parts/markup.ts";
import { moment } from "../../parts/words.ts";

/** Reasons that are the tenant's own business. All others mean that something shared is busy. */
const OWN_REASONS: Partial<Record<Reason, string>> = {
  ...Object.fromEntries(STOPS.map((stop) => [stop, "the end of a stop"])),
  not_due: "its time",
  probing: "one job that goes first, and has to succeed",
  strict_order: "an earlier job, which is tried again",
};

/** The gates that only jobs of the partition fill. */
export function ownGates({ gates }: Answer): readonly ExplainedGate[] {
  return gates.filter(({ scope, shadow }) => scope === "partition" && !shadow);
}

/** What it waits for. It does not name who occupies a shared limit, who stopped it, or why. */
export function waitsFor(it: Answer): string {
  if (it.state === "idle") return "nothing: no job waits";
  if (isOfOwnGate(it)) return `its own limit, ${it.gate}`;
  return (it.reason && OWN_REASONS[it.reason]) ?? "its turn";
}

/** When that ends, if it depends on nobody else. */
export function waitsUntil(it: Answer): Markup {
  const isOwn = it.reason !== null && (it.reason in OWN_REASONS || isOfOwnGate(it));
  return moment(isOwn ? it.nextAt : null);
}

/** When it starts. Behind a limit that others share, that time would say how much of it they have used. */
export function startsIn(it: Answer): string {
  const isShared = it.gates.some(({ scope, shadow }) => !shadow && (scope === "key" || scope === "policy"));
  if (it.state === "idle") return "–";
  if (isShared) return "depends on others";
  return it.estimate ? expectedTimes(it.estimate, it.asOf) : "not known";
}

function isOfOwnGate(it: Answer): boolean {
  return ownGates(it).some(({ gate }) => gate === it.gate);
}
