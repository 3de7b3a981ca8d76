import test from "ava";
import { CamelCasePlugin, Kysely, type KyselyPlugin, ParseJSONResultsPlugin, PostgresDialect } from "kysely";
import { fromKysely } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { addsJobs, type Driver } from "../helpers/driver.ts";

function open(url: string, plugins: KyselyPlugin[] = []): Driver {
  const db = new Kysely<object>({ dialect: new PostgresDialect({ pool: quietPool(url) }), plugins });
  return {
    client: fromKysely(db),
    transaction: (act) => db.transaction().execute((trx) => act(fromKysely(trx))),
    close: () => db.destroy(),
  };
}

test("jobs are added in a transaction of Kysely, or not at all", async (t) => {
  await addsJobs(t, await testDatabase(t), open);
});

test("plugins of Kysely that parse JSON and rename columns change nothing", async (t) => {
  const plugins = [new ParseJSONResultsPlugin(), new CamelCasePlugin()];
  await addsJobs(t, await testDatabase(t), (url) => open(url, plugins));
});

test("jobs are added in a transaction of Kysely that the application ends itself", async (t) => {
  await addsJobs(t, await testDatabase(t), (url) => {
    const db = new Kysely<object>({ dialect: new PostgresDialect({ pool: quietPool(url) }) });
    return {
      client: fromKysely(db),
      async transaction(act) {
        const trx = await db.startTransaction().execute();
        try {
          const result = await act(fromKysely(trx));
          await trx.commit().execute();
          return result;
        } catch (error) {
          await trx.rollback().execute();
          throw error;
        }
      },
      close: () => db.destroy(),
    };
  });
});
