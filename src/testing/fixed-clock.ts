import { aDate, numberFromZero, show } from "../checks/options.ts";
import { type Duration, durationMs } from "../duration.ts";
import { ArgumentError } from "../errors.ts";

/** A clock that stands still until a test moves it. Pass its `now` to ticks. */
export interface FixedClock {
  readonly now: Date;
  /**
   * Moves the clock forward, by milliseconds or a duration, and returns the new time.
   *
   * @throws {ArgumentError} if it is neither, or negative: a database does not expect a clock that goes back
   * @example clock.advance("10 minutes");
   */
  advance(by: number | Duration): Date;
}

/** The database counts microseconds, and the clock here cuts them off. */
const ROUNDED_MS = 1;

/**
 * A clock for tests of policies over time, on any server. Without a `start` it stops at the time at which it is first asked.
 *
 * So the clock may be made before jobs are added, and they are due at its `now`. Only ticks that get its `now` go by it. The
 * database goes on by its own clock: a job that is added later is due later. Give such a job `runAt: clock.now`, or advance the
 * clock. On a PGlite use `virtualClock`, which everything goes by.
 *
 * @param start Default: the time of the first call, rounded up to the next millisecond. It is this process's time.
 * @throws {ArgumentError} if `start` is no Date
 * @example
 * const clock = fixedClock();
 * await utils.addJob("fetch_endpoint", { endpointId: "ep1", accountId: "acme" });
 * await tickAt(utils, clock.now);
 * await tickAt(utils, clock.advance("1 minute"));
 */
export function fixedClock(start?: Date): FixedClock {
  let ms = start === undefined ? undefined : startMs("fixedClock", start);
  const stopped = () => {
    ms ??= Date.now() + ROUNDED_MS;
    return ms;
  };
  return {
    get now() {
      return new Date(stopped());
    },
    advance(by) {
      ms = stopped() + advanceMs(by);
      return new Date(ms);
    },
  };
}

export function startMs(clock: string, start: Date): number {
  if (aDate.accepts(start)) return start.getTime();
  throw new ArgumentError(`${clock}: start must be ${aDate.expects}, got ${show(start)}`);
}

export function advanceMs(by: number | Duration): number {
  if (typeof by === "string") return durationMs(by);
  if (numberFromZero.accepts(by)) return by;
  throw new ArgumentError(
    `clock.advance takes milliseconds, ${numberFromZero.expects}, or a duration such as "30 seconds", got ${show(by)}`,
  );
}
