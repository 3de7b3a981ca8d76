// Engines that are wrong in one place each. A race that lets one of them pass is too weak.
import type { Queryable } from "../../helpers/engine.ts";
import { plantIn } from "../../helpers/inside.ts";
import { nameOf } from "../../helpers/table.ts";

interface Fault {
  readonly of: string;
  readonly from: RegExp;
  readonly to: string;
}

export const FAULTS = {
  "a limiter that is not locked": {
    of: "_lock_limiters",
    from: /\bfor no key update\b/,
    to: "",
  },
  "a release that is lost": {
    of: "_end_slots",
    from: /(per_limiter as \([^;]*?from gone g) group by/,
    to: "$1 where mod(g.job_id, 200) <> 0 group by",
  },
  "a wake-up written by the releaser, past locked partitions, in place of a freed row": {
    of: "_announce_freed",
    from: /announced as \([\s\S]*?returning policy_id\s*\)/,
    to: `announced as (
      update ${nameOf("partitions")} p set denied_until = '-infinity', blocked_on = null
      where p.id = any(array(
        select x.id from unnest(p_waited) w cross join lateral (
          select q.id from ${nameOf("partitions")} q where q.blocked_on = w.id
          order by q.fair_key limit greatest((w.numbers).max - w.in_flight, 1) for no key update skip locked
        ) x
      ))
      returning p.policy_id
    )`,
  },
} as const satisfies Record<string, Fault>;

export type FaultName = keyof typeof FAULTS;

export async function plant({ pool }: { readonly pool: Queryable }, name: FaultName): Promise<void> {
  await plantIn(pool, { name, ...FAULTS[name] });
}
