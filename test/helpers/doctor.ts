// A database with policies and utils, for tests that plant a fault and ask the doctor.
import type { ExecutionContext } from "ava";
import type pg from "pg";
import { type AnyPolicy, type DoctorOptions, type FindingId, makePolicyUtils } from "../../src/index.ts";
import type { TestDatabase } from "./database.ts";
import { lentDatabase } from "./lent.ts";
import { greet } from "./policies.ts";
import { silent } from "./silent.ts";

/** Findings about no single policy. They may name the first of several, or quote an error. */
const OF_NONE: readonly FindingId[] = [
  "everything-paused",
  "lost-slots",
  "quarantined",
  "crontab-tick-waits",
];

/** Utils of these policies, and what the doctor says. `own`: a database that no test has had, because its statistics count. */
export async function patient(
  t: ExecutionContext,
  policies: readonly AnyPolicy[] = [greet],
  own?: TestDatabase,
) {
  const database = own ?? (await lentDatabase(t));
  const utils = await makePolicyUtils({ pgPool: database.pool, policies, logger: silent });
  t.teardown(() => utils.release());
  const findings = async (id: FindingId, thresholds: DoctorOptions["thresholds"] = {}) => {
    const all = await utils.doctor({ thresholds });
    for (const { id, sentence, policy } of all) {
      const [, named] = /policy "([^"]*)"/i.exec(sentence) ?? [];
      if (!OF_NONE.includes(id)) t.is(policy, named, sentence);
    }
    return all.filter((one) => one.id === id);
  };
  /** Another session, which the test leaves open. */
  const session = async (): Promise<pg.PoolClient> => {
    const client = await database.pool.connect();
    t.teardown(() => client.release(true));
    return client;
  };
  return { ...database, utils, findings, session };
}

/**
 * As if this process had begun just now. A doctor expects the crontab's tick some minutes after that, and a test's process may
 * be older.
 */
export async function beginsNow(pool: pg.Pool): Promise<void> {
  await pool.query("update dispatch_policy_internal.policies set declared_at = clock_timestamp()");
}
