import { moment } from "../harness/moment.ts";

export const QUIET = "quiet";
/** Those that have most of the jobs. */
export const LOUD: readonly string[] = Array.from({ length: 10 }, (_, n) => `loud-${n}`);
/** One job of so many is the quiet tenant's. */
const QUIET_EVERY = 100;

export interface Job {
  readonly tenant: string;
  /** Its place among the tenant's own. */
  readonly nth: number;
  /** By a clock that all processes of the machine share. */
  readonly addedAt: number;
  readonly padding: string;
}

/** Makes jobs with a payload of so many bytes. The loud tenants come in turn. */
export function jobMaker(payloadBytes: number): (count: number) => Job[] {
  let made = 0;
  const counts = new Map<string, number>();
  const bare: Job = { tenant: QUIET, nth: 0, addedAt: moment(), padding: "" };
  const padding = "x".repeat(Math.max(0, payloadBytes - JSON.stringify(bare).length));

  function next(): Job {
    made++;
    const tenant = made % QUIET_EVERY === 0 ? QUIET : LOUD[made % LOUD.length]!;
    const nth = (counts.get(tenant) ?? 0) + 1;
    counts.set(tenant, nth);
    return { tenant, nth, addedAt: moment(), padding };
  }

  return (count) => Array.from({ length: count }, next);
}
