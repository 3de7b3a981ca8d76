// Engines and set-ups that are wrong in one place each, each with the course in which that must show. A verdict that lets one
// pass is too weak.

import type { Queryable } from "../helpers/engine.ts";
import { plantIn } from "../helpers/inside.ts";
import type { Course } from "./conductor.ts";

interface Fault {
  readonly course: Partial<Course>;
  /** What one of the problems says. */
  readonly shows: RegExp;
  readonly plant?: (db: Queryable) => Promise<unknown>;
  /** Of workers. */
  readonly dies?: boolean;
  readonly parameters?: string;
}

const inSql = (of: string, from: RegExp, to: string) => (db: Queryable) =>
  plantIn(db, { name: of, of, from, to });

/** Jobs that the next primary has never heard of run on for seconds. */
export const UNHEARD_OF = {
  mode: "async",
  lagMs: 1500,
  rests: true,
  outageMs: 300,
  workMs: [5500, 7000],
} as const;

export const FAULTS = {
  "sequences that stay": {
    course: { mode: "async", how: ["kill"], lagMs: 1500 },
    shows: /two jobs/,
    plant: inSql("_meet_server", /perform setval\(v_ids, [^;]*;/, "null;"),
  },
  "runs that nobody says": {
    course: UNHEARD_OF,
    shows: /over the cap/,
    plant: inSql("_say_runs", /_keep_runs\(p_pool_id, p_runs, v_kept, p_gone\)/, "1; v_kept := '{}'"),
  },
  "fetches that no standby has": {
    course: { mode: "sync", how: ["kill"], lagMs: 1500 },
    shows: /ran again/,
    parameters: "?options=-c%20synchronous_commit%3Doff",
  },
  "a pool that waits for a host that is gone": {
    course: { mode: "sync", how: ["swallow"], patienceMs: 60_000 },
    shows: /started nothing/,
    dies: true,
  },
} as const satisfies Record<string, Fault>;

export type FaultName = keyof typeof FAULTS;
export const faultOf = (name: FaultName): Fault => FAULTS[name];
