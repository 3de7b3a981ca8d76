import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import { addPolicyJob, fromDrizzle } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { sendWelcome } from "./policies.ts";

const signUps = pgTable("sign_ups", { customer: text().notNull() });

export async function signUp(connectionString: string, customer: string, last: () => void): Promise<void> {
  const pool = new pg.Pool({ connectionString });
  pool.on("error", console.error);
  try {
    await drizzle(pool).transaction(async (tx) => {
      await tx.insert(signUps).values({ customer });
      await addPolicyJob(fromDrizzle(tx, sql), sendWelcome, { customer });
      last();
    });
  } finally {
    await pool.end();
  }
}
