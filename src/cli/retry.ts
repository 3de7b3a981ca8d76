import { parseArgs } from "node:util";
import { ArgumentError } from "../errors.ts";
import { makePolicyUtils } from "../host/policy-utils.ts";
import type { RetryOptions } from "../operate/retry.ts";
import { CONNECTION_OPTIONS, connectionOf } from "./connection.ts";

const OPTIONS = {
  ...CONNECTION_OPTIONS,
  policy: { type: "string" },
  partition: { type: "string" },
  since: { type: "string" },
  until: { type: "string" },
  error: { type: "string" },
  reason: { type: "string" },
  by: { type: "string" },
  "dry-run": { type: "boolean" },
} as const;

/** Brings back jobs that have failed for good. */
export const retryCommand = {
  summary: "bring back jobs that have failed for good: retry ID ..., or --policy NAME",
  help: `\
  --policy NAME          the policy of the jobs; default: none
  --partition KEY        only those of this partition; default: all
  --since TIME           only those that failed then or later, such as 2026-11-24T22:00Z; default: whenever
  --until TIME           only those that failed before; default: now
  --error TEXT           only those whose last error contains this; default: whatever it says
  --reason TEXT          why, for the audit; default: none
  --by NAME              who, for the audit; default: the database user
  --dry-run              only count the jobs; default: off`,
  async run(args: string[]): Promise<void> {
    const { values, positionals: ids } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
    const connection = connectionOf(values);
    const { policy, partition, error, reason, by, "dry-run": dryRun } = values;
    const [since, until] = [timeOf("since", values.since), timeOf("until", values.until)];
    if (ids.length === 0 && policy === undefined)
      throw new ArgumentError("retry: no jobs: give their ids, or --policy NAME");
    await using utils = await makePolicyUtils(connection);
    const jobs = { ...(ids.length > 0 && { ids }), policy, partition } as RetryOptions;
    const { matched, changed } = await utils.retry({ ...jobs, since, until, error, reason, by, dryRun });
    process.stdout.write(
      dryRun ? `${matched} failed jobs match.\n` : `Brought back ${changed} of ${matched} failed jobs.\n`,
    );
  },
};

/** @throws {ArgumentError} for a text that is no time */
function timeOf(option: string, text: string | undefined): Date | undefined {
  if (text === undefined) return undefined;
  const time = new Date(text);
  if (Number.isNaN(time.getTime()))
    throw new ArgumentError(
      `retry: --${option} must be a time such as 2026-11-24T22:00Z, got ${JSON.stringify(text)}`,
    );
  return time;
}
