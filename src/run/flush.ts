import type { WithPgClient } from "graphile-worker";
import type { Engine, Queryable } from "../db/engine.ts";
import { divide, isOfEntries } from "../db/halves.ts";
import type { PassedOn } from "../db/releasing.ts";
import type { Logger } from "../log.ts";
import type { Unreleased } from "./unreleased.ts";

export interface FlushContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly logger: Logger;
  /** Whether the slots of a few jobs go to the next ones in the release itself. Default false: a pass does it. */
  readonly passesOn?: () => boolean;
}

/** What became of a group of finished jobs. */
export interface Flushed {
  readonly group: readonly Unreleased[];
  /** Those to be tried again. */
  readonly again: readonly Unreleased[];
  /** `may_end` of each part of the group: see `engine.release`. */
  readonly answers: readonly (number | null)[];
  /** Jobs that went in the releases themselves. */
  readonly passedOn: readonly PassedOn[];
  /** Whether a pass might let jobs go. */
  readonly wakes: boolean;
  /** Undefined: no failure, other than of single jobs, which are left to a sweep. */
  readonly failure: { readonly error: unknown } | undefined;
}

/**
 * Releases a group of finished jobs. Never rejects.
 *
 * It asks for a client at once, before Graphile Worker does for its next fetch. `consume` is called when the client is
 * there, so that jobs that finish meanwhile go with the group; or when no client could be had.
 */
export async function flush(
  { withPgClient, engine, logger, passesOn }: FlushContext,
  consume: () => readonly Unreleased[],
): Promise<Flushed> {
  let group: readonly Unreleased[] = [];
  const again = new Set<Unreleased>();
  const answers: (number | null)[] = [];
  const passedOn: PassedOn[] = [];
  let wakes = false;
  const consumeGroup = () => {
    group = consume();
    for (const one of group) again.add(one);
  };
  const release = async (client: Queryable, part: readonly Unreleased[]) => {
    const jobs = part.map(({ job }) => job);
    const { left_ids, may_end, passed_on, is_to_tell } = await engine.release(client, jobs, {
      passesOn: passesOn?.(),
    });
    if (may_end !== null || is_to_tell) wakes = true;
    answers.push(passed_on ? 0 : may_end); // who went has others behind it, who wait for its end
    passedOn.push(...(passed_on ?? []));
    const left = new Set(left_ids);
    for (const one of part) if (!left.has(one.job.job)) again.delete(one);
  };
  const releasePart = (part: readonly Unreleased[]) => withPgClient((client) => release(client, part));
  const leaveToSweep = (one: Unreleased, refusal: Error) => {
    again.delete(one);
    logger.warn(
      `Could not release job ${one.job.job} of policy ${one.policy}, a sweep frees its slot: ${refusal.message}`,
      { error: refusal },
    );
  };
  try {
    await withPgClient((client) => {
      consumeGroup();
      return release(client, group);
    }).catch((error) => {
      if (!isOfEntries(error)) throw error;
      return divide(group, error, releasePart, leaveToSweep);
    });
    return { group, again: [...again], answers, passedOn, wakes, failure: undefined };
  } catch (error) {
    if (group.length === 0) consumeGroup();
    return { group, again: [...again], answers, passedOn, wakes, failure: { error } };
  }
}
