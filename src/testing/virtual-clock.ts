import { ArgumentError } from "../errors.ts";
import { advanceMs, type FixedClock, startMs } from "./fixed-clock.ts";

/** The clock of this process and of its PGlite. It stands still until a test moves it. */
export interface VirtualClock extends FixedClock, Disposable {
  /** Gives the process its own clock again. */
  restore(): void;
}

let isInstalled = false;

/**
 * Replaces the clock of this process, for tests over a PGlite. PGlite asks `Date.now()` for each time it shows.
 *
 * So the whole database goes by this clock: gates, holds, views, and Graphile Worker's own SQL. Timers (`setTimeout`) stay real.
 * **It changes `Date` for everything in the process** (or worker thread): other tests, loggers, certificates. Use it in a
 * process of its own: AVA and `node --test` start one for each test file. Restore it at the end.
 *
 * A server of PostgreSQL has a clock of its own, which this does not change. Advance the clock while no job runs, because
 * a worker whose heartbeats seem old is taken for dead. Tested with `@electric-sql/pglite` 0.5.16.
 *
 * @param start Default: the time of the process.
 * @throws {ArgumentError} if `start` is no Date, or another virtual clock is installed
 * @example
 * using clock = virtualClock(new Date("2030-01-01T00:00:00Z"));
 * clock.advance("10 minutes");
 */
export function virtualClock(start: Date = new Date()): VirtualClock {
  let ms = startMs("virtualClock", start);
  if (isInstalled)
    throw new ArgumentError(
      "virtualClock: another one is installed in this process: call its restore() first",
    );
  const restore = replaceDate(() => ms);
  isInstalled = true;
  return {
    get now() {
      return new Date(ms);
    },
    advance(by) {
      ms += advanceMs(by);
      return new Date(ms);
    },
    restore,
    [Symbol.dispose]: restore,
  };
}

/** Returns a function that puts the former Date back. */
function replaceDate(now: () => number): () => void {
  const Real = globalThis.Date;
  const { now: realNow } = Real;
  Real.now = now; // on itself, because others may have kept it
  globalThis.Date = new Proxy(Real, {
    construct: (target, args, newTarget) =>
      Reflect.construct(target, args.length > 0 ? args : [now()], newTarget),
    apply: () => new Real(now()).toString(),
  });
  const replaced = globalThis.Date;
  let isRestored = false;
  return () => {
    if (isRestored) return;
    isRestored = true;
    isInstalled = false;
    if (globalThis.Date === replaced) globalThis.Date = Real;
    Real.now = realNow;
  };
}
