import { sleep } from "../admit/sleeper.ts";
import { type TickContext, tickOnce } from "../admit/tick.ts";
import type { ReleaseQueue } from "../run/release-queue.ts";

/** How long a one-shot pool waits for its last jobs to be released before it looks for the next one. */
const CATCH_UP_MS = 5000;
/** It also waits for jobs that may be admitted as soon as this. */
const SOON_MS = 20;

/**
 * Ticks every policy until nothing more can be admitted, now or within milliseconds, because Graphile Worker may just be
 * recording an end.
 *
 * It goes on while another pass is busy: that pass may not see the last end here, and nobody would come after it.
 * It ends when the pool stops. It also ends if the clock stands still during a sleep, as a test's does, because nothing
 * becomes due then.
 */
export async function tickUntilIdle(ticks: TickContext, onStop: AbortSignal): Promise<void> {
  const until = performance.now() + CATCH_UP_MS;
  for (const { identifier: policy } of ticks.registry.policies) {
    for (;;) {
      const pass = await tickOnce(ticks, { policy, shard: null, now: null, bounded: true });
      if (pass.admitted > 0 || (pass.full && !onStop.aborted)) continue;
      const soon = pass.busy || (pass.nextInMs !== null && pass.nextInMs <= SOON_MS);
      if (!soon || onStop.aborted || performance.now() >= until) break;
      const waitsForTime = !pass.busy && (pass.nextInMs ?? 0) > 0;
      const before = Date.now();
      await sleep(SOON_MS, onStop);
      if (waitsForTime && Date.now() === before) break;
    }
  }
}

/** Before a one-shot pool looks for its next job: releases what finished, and admits what may go then. */
export async function catchUp(
  ticks: TickContext,
  releases: Pick<ReleaseQueue, "idle">,
  onStop: AbortSignal,
): Promise<void> {
  await Promise.race([releases.idle(), sleep(CATCH_UP_MS, onStop, { keepsAlive: false })]);
  await tickUntilIdle(ticks, onStop);
}
