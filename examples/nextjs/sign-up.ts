import { addPolicyJob } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { sendWelcome } from "./policies.ts";

const UNIQUE_VIOLATION = "23505";

/** A module is loaded anew after each change in development, and its pool would stay. So the pool is kept outside. */
const kept = globalThis as { pool?: pg.Pool };
const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
kept.pool ??= new pg.Pool({ connectionString }).on("error", console.error);
const { pool } = kept;

/**
 * Signs a customer up, and adds the job that welcomes them: both, or neither. Gives the job's id, or null for a customer
 * who has signed up before.
 */
export async function signUp(customer: string): Promise<string | null> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const job = await addPolicyJob(client, sendWelcome, { customer });
    await client.query("insert into sign_ups (customer) values ($1)", [customer]);
    await client.query("commit");
    return job.id;
  } catch (error) {
    await client.query("rollback");
    if (error instanceof pg.DatabaseError && error.code === UNIQUE_VIOLATION) return null;
    throw error;
  } finally {
    client.release();
  }
}
