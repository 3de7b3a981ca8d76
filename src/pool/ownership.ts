import type { Job } from "graphile-worker";
import { sleep } from "../admit/sleeper.ts";
import { ERROR_SLEEP_MS, type PoolLife } from "./pool-context.ts";
import type { SaidRuns } from "./said-runs.ts";
import type { Silence } from "./silence.ts";

export interface OwnershipContext {
  readonly silence: Silence;
  readonly saidRuns: Pick<SaidRuns, "givingUp" | "owesWord">;
  readonly life: PoolLife;
  /** Sends a heartbeat. Does not reject. */
  readonly beat: () => Promise<void>;
  /** Asks the database whether a job is still this pool's. */
  readonly keeps: (job: Job) => Promise<{ keeps: boolean; now: Date }>;
}

/** Whether the jobs that a pool has fetched are still its own after a silence. */
export function makeOwnership({ silence, saidRuns, life, beat, keeps }: OwnershipContext) {
  /** The heartbeat that is to end a silence, one for all jobs that wait. */
  let beating: Promise<void> | undefined;

  async function confirm(job: Job): Promise<void> {
    do {
      await saidRuns.givingUp();
      await untilHeard(life.onClose);
      await silence.check(job, () => keeps(job));
      // the answer may have come before a silence, or before locks were given up, and be read after it
    } while ((silence.lasts() || saidRuns.givingUp() !== null) && !life.closed);
  }

  async function untilHeard(end: AbortSignal): Promise<void> {
    while (isUnheard() && !end.aborted) {
      beating ??= beat().finally(() => {
        beating = undefined;
      });
      await beating;
      if (isUnheard()) await sleep(ERROR_SLEEP_MS, end);
    }
  }

  /** Rejects if the pool stops meanwhile: then nothing is to be fetched. */
  async function untilSaid(): Promise<void> {
    await untilHeard(life.onStop);
    if (life.stopping) throw new Error("This worker pool stops");
  }

  /** What the pool has fetched, or fetches now, may be others' by now. */
  function isUnheard(): boolean {
    return silence.lasts() || saidRuns.owesWord();
  }

  return {
    /** Before jobs are fetched: null, or a promise that resolves once the server has heard what runs here. */
    heard: (): Promise<void> | null => (saidRuns.owesWord() ? untilSaid() : null),
    /** Before a job runs: null if it is certainly this pool's, else a promise that rejects if others have it now. */
    confirm: (job: Job): Promise<void> | null =>
      saidRuns.givingUp() !== null || silence.doubts(job) ? confirm(job) : null,
  };
}
