import { setTimeout as delay } from "node:timers/promises";
import { addPolicyJob } from "graphile-worker-dispatch-policy";
import { downloadReport, renderReport } from "./policies.ts";

/**
 * Stores the report and adds the job that renders it, in one transaction: both, or neither. A job that runs again finds the
 * row, and adds no second job.
 */
export const download = downloadReport.task(async (report, { withPgClient }) => {
  const { account, month } = report;
  const text = `the partner's report of ${account} for month ${month}`;
  await withPgClient(async (client) => {
    await client.query("begin");
    try {
      const { rowCount } = await client.query(
        "insert into reports (account, month, text) values ($1, $2, $3) on conflict do nothing",
        [account, month, text],
      );
      if (rowCount === 1) await addPolicyJob(client, renderReport, report);
      await client.query("commit");
    } catch (error) {
      await client.query("rollback");
      throw error;
    }
  });
});

/** Counts how often it ran, which must be once for each report. */
export const render = renderReport.task(async ({ account, month }, { query }) => {
  await delay(20);
  await query("update reports set rendered = rendered + 1 where account = $1 and month = $2", [
    account,
    month,
  ]);
});
