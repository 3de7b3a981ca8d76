import type { WithPgClient } from "graphile-worker";
import type { Lead } from "../admit/tick-loop.ts";
import type { Engine } from "../db/engine.ts";
import { inHalves } from "../db/halves.ts";
import { type EventSink, emit } from "../events.ts";
import type { Logger } from "../log.ts";
import { makePulse } from "./pulse.ts";
import { type Lost, makeSuspects } from "./suspects.ts";

/** The most jobs in flight that one look reads. Mostly none has ended elsewhere, and where many run, each look is felt. */
const PAGE = 500;
const PAGE_OFTEN = 2000;
/** How often it looks while a gate is full, and while jobs keep ending elsewhere. */
const LOOK_MS = 1000;
const LOOK_OFTEN_MS = 50;
/** For how long after the last find it looks often. */
const OFTEN_FOR_MS = 10_000;

export interface EndedElsewhereContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly events: EventSink;
  readonly logger: Logger;
  /** Called with a policy that has slots free again. */
  readonly onReleased: (policy: string) => void;
}

/**
 * Finds admitted jobs that have ended, and whose slots nobody frees. Mostly they ended in workers without this package.
 * Such workers run beside others while a deployment goes through, and until the next sweep their gates would stay full. That
 * is said only of jobs that were seen there: a worker under the preset may be slow, or lack the policy.
 *
 * It looks at a policy from the time its loop starts, and while its gates are full. Looks become frequent, and the
 * grace short, only when such jobs are found. A slow process that has the preset must not lose the outcomes of its
 * jobs.
 */
export function makeEndedElsewhere(context: EndedElsewhereContext) {
  const { withPgClient, engine, logger } = context;
  const watched = new Map<string, { policy: string }>();
  const suspects = makeSuspects();
  let after = "0";
  let isSecondLook = false;
  let oftenUntil = 0;
  let found = 0;
  let elsewhere = 0;
  const isOften = () => performance.now() < oftenUntil;

  const pulse = makePulse(async () => {
    try {
      if (watched.size === 0) return LOOK_MS;
      const slots = await look();
      if (slots.length > 0) {
        oftenUntil = performance.now() + OFTEN_FOR_MS; // before the release, which makes loops pass
        const released = await releaseLost(context, slots);
        const there = released.filter((slot) => slot.elsewhere);
        const others = released.filter((slot) => !slot.elsewhere);
        if (elsewhere === 0) tellElsewhere(there, logger);
        if (found === elsewhere) tellLost(others, logger);
        elsewhere += there.length;
        found += released.length;
      }
      if (isOften()) return LOOK_OFTEN_MS;
      if (elsewhere > 0)
        logger.info(`${elsewhere} jobs ended in workers without this package; now none does`);
      found = 0;
      elsewhere = 0;
    } catch (error) {
      logger.warn(`Looking for jobs that ended elsewhere failed: ${(error as Error).message}`, { error });
    }
    return LOOK_MS;
  });

  /** Reads a page. Returns the slots that were lost for longer than their grace. */
  async function look(): Promise<Lost[]> {
    const asked = [...watched];
    const policies = asked.map(([, { policy }]) => policy);
    const page = await withPgClient((client) =>
      engine.lookForLost(client, policies, after, isOften() ? PAGE_OFTEN : PAGE),
    );
    if (page.after === "0" && page.next_after === "0") {
      const idle = asked.filter(([, { policy }]) => !page.known.includes(policy));
      // a pass may have found its gates full meanwhile
      for (const [line, entry] of idle) if (watched.get(line) === entry) watched.delete(line);
    }
    const lost = suspects.lost(page, performance.now(), isOften());
    // A slot counts as lost once two looks have seen it. With thousands of jobs, this page comes again much later.
    isSecondLook = !isSecondLook && !isOften() && page.lost.length > lost.length;
    if (!isSecondLook) after = page.next_after;
    return lost;
  }

  return {
    start: (): void => pulse.schedule(LOOK_MS),
    /**
     * Whether a loop's last pass found gates full. While jobs keep ending elsewhere, what a pass admits may end there too,
     * although it leaves nobody waiting.
     */
    watch({ policy, shard }: Lead, full: boolean): void {
      const line = `${policy}\n${shard}`;
      if (full || isOften()) watched.set(line, { policy });
      else watched.delete(line);
    },
    stop: pulse.stop,
  };
}

/** Frees slots. Returns which. */
async function releaseLost(
  { withPgClient, engine, events, logger, onReleased }: EndedElsewhereContext,
  slots: readonly Lost[],
): Promise<Lost[]> {
  const left = new Set<string>();
  await inHalves(
    slots,
    async (part) => {
      for (const job of await withPgClient((client) => engine.releaseLost(client, part))) left.add(job);
    },
    ({ job, policy }, error) => {
      left.add(job);
      logger.warn(`Policy "${policy}": cannot free the slot of job ${job}: ${error.message}`, { error });
    },
  );
  const released = slots.filter(({ job }) => !left.has(job));
  for (const policy of policiesOf(released)) {
    onReleased(policy);
    const count = released.filter((slot) => slot.policy === policy && slot.elsewhere).length;
    if (count > 0) emit(events, "dispatchPolicy:endedElsewhere", { policy, count });
  }
  return released;
}

function policiesOf(slots: readonly Lost[]): Set<string> {
  return new Set(slots.map(({ policy }) => policy));
}

function tellElsewhere(slots: readonly Lost[], logger: Logger): void {
  if (slots.length === 0) return;
  logger.warn(
    `${slots.length} admitted jobs ended in workers without this package (policies: ${[...policiesOf(slots)].join(", ")}). ` +
      "Such workers free no slots, so this process does, a moment late. Add the preset to all workers that " +
      "run these policies' tasks, or stop the others. status() counts such jobs as endedElsewhere",
  );
}

function tellLost(slots: readonly Lost[], logger: Logger): void {
  if (slots.length === 0) return;
  logger.warn(
    `${slots.length} admitted jobs ended, and their workers have not freed the slots (policies: ` +
      `${[...policiesOf(slots)].join(", ")}), so this process has. Those workers are slow or lost their connection, or ` +
      "they lack the policy or the preset",
  );
}
