import { parameter } from "../../db/engine.ts";
import type { OperateContext } from "../../operate/call.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/policy.ts";
import { lasting } from "../parts/words.ts";

/** A number of a limit: as it is, and as it would be. */
export interface Change {
  readonly number: string;
  readonly now: string;
  readonly then: string;
}

type Gate = PolicyDefinition["gates"][number];
/** The numbers that the page may set. A gate has some of them. */
const NUMBERS = ["rate", "per", "max"] as const;
type Numbers = Readonly<Partial<Record<(typeof NUMBERS)[number], number | null | undefined>>>;

const LIMITER = `where policy = ${parameter(1, "text")} and gate = ${parameter(2, "text")} and scope_key = ${parameter(3, "text")}`;

export interface Limit {
  readonly policy: string;
  readonly gate: Gate;
  /** Undefined: every key of the gate. */
  readonly key: string | undefined;
}

/** What new numbers would change. Those that are left out stay. Null in place of them: the gate's own come back. */
export async function changesOf(
  looking: OperateContext,
  { policy, gate, key }: Limit,
  set: Numbers | null,
): Promise<readonly Change[]> {
  const own: Numbers = gate.values ?? {};
  // of a gate over the policy, the limiter has the empty text as its key
  const scopeKey = gate.scope === "policy" ? "" : key;
  const given = [policy, gate.name, scopeKey];
  const [limiter] = scopeKey === undefined ? [] : await rowsOf<Numbers>(looking, "limiters", LIMITER, given);
  return NUMBERS.filter((number) => number in gate.overrides).map((number) => {
    const now = (limiter ?? own)[number];
    return {
      number,
      now: shown(number, now),
      then: shown(number, set === null ? own[number] : (set[number] ?? now)),
    };
  });
}

function shown(number: keyof Numbers, value: number | null | undefined): string {
  if (value === null || value === undefined) return "as the context says";
  return number === "per" ? lasting(value) : String(value);
}
