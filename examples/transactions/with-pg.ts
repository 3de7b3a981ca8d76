import { addPolicyJob } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { sendWelcome } from "./policies.ts";

/** Signs a customer up, and adds the job that welcomes them: both, or neither if `last` throws. */
export async function signUp(connectionString: string, customer: string, last: () => void): Promise<void> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    await client.query("begin");
    await client.query("insert into sign_ups (customer) values ($1)", [customer]);
    await addPolicyJob(client, sendWelcome, { customer });
    last();
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    await client.end();
  }
}
