import test from "ava";
import postgres, { type Options } from "postgres";
import { fromPostgresJs } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { addsJobs, type Driver } from "../helpers/driver.ts";

function open(url: string, options: Options<Record<string, postgres.PostgresType>> = {}): Driver {
  const sql = postgres(url, options);
  return {
    client: fromPostgresJs(sql),
    // its own type of the result unwraps arrays of promises
    transaction: (act) => sql.begin((tx) => act(fromPostgresJs(tx))) as ReturnType<typeof act>,
    close: () => sql.end(),
  };
}

test("jobs are added in a transaction of postgres.js, or not at all", async (t) => {
  await addsJobs(t, await testDatabase(t), open);
});

test("a postgres.js that renames columns, has types of its own and asks for none changes nothing", async (t) => {
  const types = { bigint: postgres.BigInt };
  await addsJobs(t, await testDatabase(t), (url) =>
    open(url, { transform: postgres.camel, fetch_types: false, types }),
  );
});

test("jobs are added in a savepoint of postgres.js", async (t) => {
  await addsJobs(t, await testDatabase(t), (url) => {
    const sql = postgres(url);
    return {
      client: fromPostgresJs(sql),
      transaction: (act) =>
        sql.begin((tx) => tx.savepoint((inner) => act(fromPostgresJs(inner)))) as ReturnType<typeof act>,
      close: () => sql.end(),
    };
  });
});
