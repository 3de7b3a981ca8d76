import { addPolicyJob, fromKysely } from "graphile-worker-dispatch-policy";
import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import { sendWelcome } from "./policies.ts";

interface Tables {
  sign_ups: { customer: string };
}

export async function signUp(connectionString: string, customer: string, last: () => void): Promise<void> {
  const pool = new pg.Pool({ connectionString });
  pool.on("error", console.error);
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
  try {
    await db.transaction().execute(async (trx) => {
      await trx.insertInto("sign_ups").values({ customer }).execute();
      await addPolicyJob(fromKysely(trx), sendWelcome, { customer });
      last();
    });
  } finally {
    await db.destroy();
  }
}
