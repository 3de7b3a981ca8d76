import { setTimeout as delay } from "node:timers/promises";
import type { ExportedRow } from "../db/engine.ts";
import { isBusy } from "../db/outage.ts";
import { ArgumentError } from "../errors.ts";
import { asOurs, type OperateContext } from "./call.ts";
import { IDLE_SLEEP_MS, IDLE_STEPS } from "./steps.ts";
import type { PolicyTarget, Why } from "./targets.ts";
import { checkVerb } from "./verb.ts";

/** The options of `export`: jobs by their staged ids, or those of a policy or a partition. Neither is an {@link ArgumentError}. */
export type ExportOptions = (
  | {
      /** Staged ids. */
      ids: readonly string[];
    }
  | PolicyTarget
) &
  Why;

/** A staged job, as `export` reads it. */
export interface ExportedJob {
  /** The staged id. */
  readonly id: string;
  /** Its policy. */
  readonly policy: string | null;
  /** The key of its partition. Null: not worked out yet. */
  readonly partition: string | null;
  /** When it was added; of a failed job: when it began to wait for its retry. */
  readonly createdAt: Date;
  /** How often it has failed. */
  readonly attempts: number;
  /** Of a failed job. */
  readonly lastError: string | null;
  /** What `addJobs` takes, to add the job again. A failed job has the attempts that it has left. */
  readonly spec: {
    readonly identifier: string;
    readonly payload: unknown;
    readonly runAt: Date;
    readonly priority: number;
    readonly queueName?: string;
    readonly maxAttempts?: number;
    readonly jobKey?: string;
    readonly flags?: string[];
    readonly expiresAt?: Date;
  };
}

/** Documented at {@link Operate.export}. Payloads are JSON texts, which `read` makes values. */
export function exportJobs(
  context: OperateContext,
  options: ExportOptions,
  read: (payload: string) => unknown = JSON.parse,
): AsyncIterable<ExportedJob> {
  checkVerb("export", options, { takes: ["ids", "policy", "partition", "reason", "by"] });
  const { ids, policy, partition, reason, by } = options as Partial<PolicyTarget> &
    Why & { ids?: readonly string[] };
  if (ids === undefined && policy === undefined)
    throw new ArgumentError("export: expected { ids } or { policy, partition? }, got neither");
  const page = (after: string) => readPage(context, { policy, partition, ids, after, reason, by });
  return pages(page, read);
}

async function* pages(
  page: (after: string) => Promise<readonly ExportedRow[]>,
  read: (payload: string) => unknown,
): AsyncGenerator<ExportedJob> {
  for (let after = "0"; ; ) {
    const rows = await page(after);
    for (const row of rows) {
      after = row.id;
      if (row.payload !== null) yield exported(row, read(row.payload));
    }
    if (rows.length === 0) return;
  }
}

/** Somebody may have a failed job locked for a moment. */
async function readPage(
  context: OperateContext,
  asked: Parameters<OperateContext["engine"]["exportedPage"]>[1],
): Promise<readonly ExportedRow[]> {
  const { engine, withPgClient } = context;
  for (let tries = 1; ; tries++) {
    try {
      return await asOurs(() => withPgClient((client) => engine.exportedPage(client, asked)), context);
    } catch (error) {
      if (!isBusy(error) || tries === IDLE_STEPS) throw error;
      await delay(IDLE_SLEEP_MS);
    }
  }
}

function exported(row: ExportedRow, payload: unknown): ExportedJob {
  return {
    ...{ id: row.id, policy: row.policy, partition: row.partition, createdAt: row.created_at },
    ...{ attempts: row.attempts, lastError: row.last_error },
    spec: {
      ...{ identifier: row.identifier, payload, runAt: row.run_at as Date, priority: row.priority },
      ...(row.queue_name !== null && { queueName: row.queue_name }),
      ...(row.max_attempts !== null && { maxAttempts: row.max_attempts }),
      ...(row.job_key !== null && { jobKey: row.job_key }),
      ...(row.flags !== null && { flags: row.flags }),
      ...(row.expires_at !== null && { expiresAt: row.expires_at }),
    },
  };
}
