import test from "ava";
import { sql } from "drizzle-orm";
import { drizzle as overPg } from "drizzle-orm/node-postgres";
import { drizzle as overPostgresJs } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import { fromDrizzle } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { addsJobs } from "../helpers/driver.ts";

test("jobs are added in a transaction of Drizzle over pg, or not at all", async (t) => {
  await addsJobs(t, await testDatabase(t), (url) => {
    const pool = quietPool(url);
    const db = overPg(pool);
    return {
      client: fromDrizzle(db, sql),
      transaction: (act) => db.transaction((tx) => act(fromDrizzle(tx, sql))),
      close: () => pool.end(),
    };
  });
});

test("jobs are added in a transaction of Drizzle over postgres.js, or not at all", async (t) => {
  await addsJobs(t, await testDatabase(t), (url) => {
    const client = postgres(url);
    const db = overPostgresJs(client);
    return {
      client: fromDrizzle(db, sql),
      transaction: (act) => db.transaction((tx) => act(fromDrizzle(tx, sql))),
      close: () => client.end(),
    };
  });
});

test("parameters of Drizzle are found by number, and not within quotes", async (t) => {
  const { pool } = await testDatabase(t);
  const { rows } = await fromDrizzle(overPg(pool), sql).query(
    `select $2::text || '$1''$2' || $1::text || $2::text as "$1""$2", $3::text[] as list, $4::text as none`,
    ["a", "b", ["c", "d"], null],
  );
  t.deepEqual(rows, [{ '$1"$2': "b$1'$2ab", list: ["c", "d"], none: null }]);
});
