import { counted } from "../counted.ts";
import type { Logger } from "../log.ts";
import type { Repaired } from "../operate/sweep.ts";

/** What a sweep repaired: one of each kind, and several. */
const KINDS: Readonly<Record<keyof Repaired, readonly [one: string, many: string]>> = {
  pools: ["dead worker pool", "dead worker pools"],
  unlocked: ["job that a dead pool had locked", "jobs that dead pools had locked"],
  overdue: ["slot past its slotTimeout", "slots past their slotTimeout"],
  jobs: ["lost slot", "lost slots"],
  counters: ["wrong counter", "wrong counters"],
  asleep: ["partition that slept with due jobs", "partitions that slept with due jobs"],
  blocked: ["partition that waited in vain", "partitions that waited in vain"],
  pending: ["wrong count of a backlog", "wrong counts of a backlog"],
};

/** "3 lost slots, 1 wrong counter". */
function named(repaired: Repaired): string {
  const kinds = Object.entries(KINDS) as [keyof Repaired, readonly [string, string]][];
  return kinds
    .filter(([kind]) => repaired[kind] > 0)
    .map(([kind, [one, many]]) => counted(repaired[kind], one, many))
    .join(", ");
}

/** Warns of what a sweep repaired. Silent if that is nothing. */
export function warnOfRepairs(repaired: Repaired, logger: Logger): void {
  if (Object.values(repaired).every((n) => n === 0)) return;
  logger.warn(
    `A sweep repaired what a crash or a wrong clock left: ${named(repaired)}. ` +
      "Nothing is to be done. If it comes again and again, the command doctor says what is wrong",
    { repaired },
  );
}
