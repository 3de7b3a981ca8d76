import type { WithPgClient } from "graphile-worker";
import type { Engine, OldSnapshot } from "../db/engine.ts";
import type { Logger } from "../log.ts";
import { causeOf } from "../operate/doctor/snapshots.ts";

const OLDER_THAN_MS = 300_000;
/** A quiet database has few dead rows, and passes do not notice them. */
const KEPT_AT_LEAST = 10_000;
/** By a slot or a standby, or by a session whose times this role may not see. */
const KEPT_WITHOUT_TIME = 100_000;
const FORGOTTEN_AFTER_MS = 3_600_000;

/**
 * Warns once of each transaction, slot or standby that keeps PostgreSQL from removing dead rows. Some come and go from look
 * to look, as the snapshots of a reader do. So it forgets one that it has not seen for an hour.
 */
export function makeOldSnapshots(
  logger: Logger,
  { olderThanMs = OLDER_THAN_MS, now = () => performance.now() } = {},
) {
  const seenAt = new Map<string, number>();

  return {
    async look(withPgClient: WithPgClient, engine: Engine): Promise<void> {
      const found = await withPgClient((client) =>
        engine.oldSnapshots(client, olderThanMs, KEPT_WITHOUT_TIME),
      );
      for (const [key, at] of seenAt) if (now() - at >= FORGOTTEN_AFTER_MS) seenAt.delete(key);
      for (const snapshot of found.filter(({ transactions }) => transactions >= KEPT_AT_LEAST)) {
        const key = keyOf(snapshot);
        if (!seenAt.has(key))
          logger.warn(`Passes get slower. ${causeOf(snapshot)}. The command doctor says how to end it`, {
            snapshot,
          });
        seenAt.set(key, now());
      }
    },
  };
}

/** A session may have one transaction after the other. */
const keyOf = (one: OldSnapshot) =>
  JSON.stringify([one.kind, one.kind === "prepared" || one.kind === "slot" ? one.name : one.pid, one.since]);
