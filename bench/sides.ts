// The two sides of a comparison as a user has them: this package's utils and Graphile Worker's, each on a database of
// its own that is new.
import { makeWorkerUtils, type WorkerUtils } from "graphile-worker";
import { type AnyPolicy, makePolicyUtils } from "../src/index.ts";
import { type TestDatabase, testDatabase } from "../test/helpers/database.ts";
import { stopAutovacuum } from "./autovacuum.ts";
import { atEnd } from "./closing.ts";
import { logger } from "./logger.ts";

export type SideName = "governed" | "plain";

export interface Side extends TestDatabase {
  readonly utils: Pick<WorkerUtils, "addJob" | "addJobs">;
  close(): Promise<void>;
}

export interface SideOptions {
  readonly policy: AnyPolicy;
  readonly connections?: number;
  /** Unless true, tables are vacuumed and analyzed by statements alone. */
  readonly autovacuum?: boolean;
}

export async function openSide(
  name: SideName,
  { policy, connections = 10, autovacuum = false }: SideOptions,
): Promise<Side> {
  const database = await testDatabase();
  const closeDatabase = atEnd(database.drop);
  if (!autovacuum) await stopAutovacuum(database.pool);
  const options = { connectionString: database.url, maxPoolSize: connections, logger };
  const utils =
    name === "governed"
      ? await makePolicyUtils({ ...options, policies: [policy] })
      : await makeWorkerUtils(options);
  const closeUtils = atEnd(async () => utils.release());
  return {
    ...database,
    utils: utils as Side["utils"],
    async close() {
      await closeUtils();
      await closeDatabase();
    },
  };
}
