// Who runs the tick loops.
import type { Queryable } from "./engine.ts";
import { table } from "./table.ts";

export interface Lease {
  readonly policy: string;
  readonly shard: string;
  /** The id of the worker pool that leads. */
  readonly holder: string;
  readonly expires_at: Date;
}

/** Those that run now, in the order of their shards. */
export function liveLeases(db: Queryable): Promise<Lease[]> {
  return table(db, "leases").all({ expires_at: (its) => `${its} > clock_timestamp()` }, "shard");
}
