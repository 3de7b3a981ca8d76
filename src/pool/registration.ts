import { sleep } from "../admit/sleeper.ts";
import { isOutage } from "../db/outage.ts";
import type { Logger } from "../log.ts";
import { ERROR_SLEEP_MS, type PoolLife } from "./pool-context.ts";

export interface RegistrationContext {
  readonly life: Pick<PoolLife, "stopping" | "onStop">;
  /** Sends the first heartbeat. */
  readonly introduce: () => Promise<unknown>;
  /** If a heartbeat fails, this shows whether it is an outage or a lasting error: it throws what says more. */
  readonly declare: () => Promise<unknown>;
  /** Says that the pool has ended. */
  readonly sayEnded: () => Promise<unknown>;
  readonly logger: Logger;
}

/**
 * Whether other processes know of a pool. Its workers wait until they do: if a pool is killed before, nobody would unlock
 * its jobs.
 */
export function makeRegistration({ life, introduce, declare, sayEnded, logger }: RegistrationContext) {
  let state: "unknown" | "registered" | "failed" | "left" = "unknown";

  async function tryUntilStopped(): Promise<boolean> {
    while (!life.stopping) {
      try {
        await introduce();
        return true;
      } catch (error) {
        if (life.stopping) return false;
        await declare().catch(throwUnlessOutage);
        logger.warn(`Cannot register, trying again: ${(error as Error).message}`, { error });
        await sleep(ERROR_SLEEP_MS, life.onStop);
      }
    }
    return false;
  }

  return {
    /**
     * Makes the pool known, through any outage, unless the pool is stopped first.
     *
     * @throws what declaring the policies throws, unless that is an outage
     */
    async register(): Promise<void> {
      let registered = false;
      try {
        registered = await tryUntilStopped();
      } finally {
        state = registered ? "registered" : "failed";
      }
    },
    /** Registering ended without success: nobody knows of the pool, nor will. */
    hasFailed: (): boolean => state === "failed",
    /** Says that the pool has ended, if it was known. */
    async leave(): Promise<void> {
      if (state !== "registered") return;
      await sayEnded();
      state = "left";
    },
  };
}

function throwUnlessOutage(error: unknown): void {
  if (!isOutage(error)) throw error;
}
