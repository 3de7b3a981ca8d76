// Prisma is too large to be installed with the rest: `npm run test:prisma` installs it, and runs this file. Without it, a
// stand-in over pg keeps to what Prisma promises.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import type pg from "pg";
import { fromPrisma, type PrismaLike } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { addsJobs, type Driver } from "../helpers/driver.ts";

const FOLDER = new URL("prisma/", import.meta.url);
const isInstalled = existsSync(new URL("generated/client.ts", FOLDER));
const installed = isInstalled ? test : test.skip;
if (!isInstalled) console.error("# Skipped: adding jobs with Prisma, which npm run test:prisma installs");

installed("jobs are added in a transaction of Prisma, or not at all", async (t) => {
  const { open } = (await import(new URL("driver.ts", FOLDER).href)) as { open: (url: string) => Driver };
  await addsJobs(t, await testDatabase(t), open);
});

for (const compiler of ["typescript", "ts59"]) {
  installed(`fromPrisma takes Prisma's own client, says ${compiler}`, async (t) => {
    const tsc = fileURLToPath(new URL(`../../node_modules/${compiler}/bin/tsc`, import.meta.url));
    const args = [tsc, "-p", fileURLToPath(FOLDER)];
    await t.notThrowsAsync(promisify(execFile)(process.execPath, args));
  });
}

/** Prisma's error of a raw query: its own code, and the database's error in `meta`. */
const raised = {
  "a driver adapter": ({ code, message }: pg.DatabaseError) => ({
    driverAdapterError: { cause: { originalCode: code, originalMessage: message } },
  }),
  "the engine": ({ code, message }: pg.DatabaseError) => ({ code, message: `ERROR: ${message}` }),
};

for (const [what, metaOf] of Object.entries(raised)) {
  test(`what Prisma promises of raw queries is enough, with errors of ${what}`, async (t) => {
    const prismaOf = (client: pg.Pool | pg.PoolClient): PrismaLike => ({
      async $queryRawUnsafe(text, ...values) {
        try {
          return (await client.query(text, values)).rows;
        } catch (error) {
          const meta = metaOf(error as pg.DatabaseError);
          throw Object.assign(new Error("Invalid invocation"), { code: "P2010", meta });
        }
      },
    });
    await addsJobs(t, await testDatabase(t), (url) => {
      const pool = quietPool(url);
      return {
        client: fromPrisma(prismaOf(pool)),
        async transaction(act) {
          const client = await pool.connect();
          try {
            await client.query("begin");
            const result = await act(fromPrisma(prismaOf(client)));
            await client.query("commit");
            return result;
          } catch (error) {
            await client.query("rollback");
            throw error;
          } finally {
            client.release();
          }
        },
        close: () => pool.end(),
      };
    });
  });
}
