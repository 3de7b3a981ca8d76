import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "graphile-worker";
import { isOutage } from "../db/outage.ts";

const ERROR_PAUSE_MS = 1000;

interface Registration {
  /** The first heartbeat. */
  readonly send: () => Promise<unknown>;
  /** What a heartbeat meets it cannot tell from an outage: declaring the policies says more. */
  readonly declare: () => Promise<unknown>;
  readonly isStopping: () => boolean;
  readonly logger: Logger;
}

/**
 * Makes a pool known, through any outage. Workers wait for it: nobody would unlock the jobs of a pool that is killed before
 * anybody knows of it. False: it was stopped first.
 *
 * @throws what declaring the policies throws, unless that goes by
 */
export async function register({ send, declare, isStopping, logger }: Registration): Promise<boolean> {
  while (!isStopping()) {
    try {
      await send();
      return true;
    } catch (error) {
      if (isStopping()) return false;
      await declare().catch(throwUnlessOutage);
      logger.warn(`Cannot register, trying again: ${(error as Error).message}`, { error });
      await delay(ERROR_PAUSE_MS);
    }
  }
  return false;
}

function throwUnlessOutage(error: unknown): void {
  if (!isOutage(error)) throw error;
}
