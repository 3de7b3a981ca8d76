// The two sides of a comparison as a user has them: this package's utils and Graphile Worker's, each on a database of
// its own that is new.
import type { AnyPolicy } from "../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../test/helpers/database.ts";
import { type Adder, openAdder } from "./adder.ts";
import { stopAutovacuum } from "./autovacuum.ts";
import { atEnd } from "./closing.ts";

export type SideName = "governed" | "plain";

export interface Side extends TestDatabase {
  readonly utils: Adder;
  close(): Promise<void>;
}

export interface SideOptions {
  readonly policy: AnyPolicy | readonly AnyPolicy[];
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
  const utils = await openAdder(name, { policy, connectionString: database.url, maxPoolSize: connections });
  const closeUtils = atEnd(async () => utils.release());
  return {
    ...database,
    utils,
    async close() {
      await closeUtils();
      await closeDatabase();
    },
  };
}
