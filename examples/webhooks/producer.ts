import { addPolicyJob, addPolicyJobs } from "graphile-worker-dispatch-policy";
import type { Pool } from "pg";
import { deliverWebhook } from "./policies.ts";

/** A bulk of events for one customer, in one statement. */
export async function announceReleases(pool: Pool, url: string, count: number): Promise<void> {
  await addPolicyJobs(
    pool,
    Array.from({ length: count }, (_, id) => ({
      policy: deliverWebhook,
      payload: { customer: "loud", url, event: { id, type: "release.published" } },
    })),
  );
}

/** One event in the transaction that causes it: both happen, or neither. */
export async function signUp(pool: Pool, url: string): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query("create table if not exists sign_ups (customer text)");
    await client.query("insert into sign_ups values ('quiet')");
    const event = { id: 1, type: "customer.created" };
    await addPolicyJob(
      client,
      deliverWebhook,
      { customer: "quiet", url, event },
      { jobKey: "welcome:quiet" },
    );
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}

/** From SQL, as a trigger would; the job's own task adds the delivery. */
export async function payOrder(pool: Pool, url: string): Promise<void> {
  await pool.query("select dispatch_policy.add_job('order_paid', $1)", [
    JSON.stringify({ customer: "quiet", url, order: 7 }),
  ]);
}
