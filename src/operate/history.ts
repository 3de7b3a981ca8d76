import { parameter } from "../db/engine.ts";
import type { Reason } from "../policy/reasons.ts";
import type { OperateContext } from "./call.ts";
import type { Outcome } from "./outcomes.ts";
import { spelledJson } from "./rows.ts";
import { checkVerb } from "./verb.ts";
import { rowsOf } from "./view-rows.ts";

/** What happened to a job: a row of the view `history`. */
export interface JobHistory {
  /** Its staged id; of a job that was added past its policy Graphile Worker's. */
  id: string;
  /** Graphile Worker's id; null: it was never admitted. */
  jobId: string | null;
  policy: string;
  /** The partition's key; null: it was never worked out. */
  partition: string | null;
  taskIdentifier: string | null;
  jobKey: string | null;
  /** When it was added; null: not known, because it came past its policy or before the policy had a history. */
  addedAt: Date | null;
  /** From when it might go; null: as `addedAt`. */
  dueAt: Date | null;
  /** When it was admitted first; null: never. */
  admittedAt: Date | null;
  /** When it was admitted last: after a failure it passes its gates again. */
  lastAdmittedAt: Date | null;
  /** When its last attempt started; null: none did, or nobody saw it. */
  startedAt: Date | null;
  /** When it ended for good; null: it has not. */
  endedAt: Date | null;
  /**
   * How it ended; null: it has not. `failed` is for good. `removed`: by an operator, before it ran. `dropped`: by
   * `maxPending` or `whenBusy`. `replaced`: by a newer job of its key. `gone`: Graphile Worker does not have it any more, and
   * nobody saw its end.
   */
  outcome: Outcome | null;
  /** How many times it was started; null: it has not ended, or nobody knows. */
  attempts: number | null;
  /** The first line of its last error, if it failed for good. */
  error: string | null;
  /**
   * Seconds that it waited in staging, by reason, before all its admissions. `in_line`: nothing held its partition back, and
   * others went first.
   */
  waited: Partial<Record<Reason | "in_line", number>>;
  /** Seconds that it waited in staging for each gate, by the gate's name. Waits for no gate are left out. */
  waitedByGate: Readonly<Record<string, number>>;
  /** Its attempts that failed, at most the last ten. */
  failedAttempts: readonly FailedAttempt[];
  /** The id of the trace in which it was added; null: none is known. */
  traceId: string | null;
}

/** A run of a job that failed. */
export interface FailedAttempt {
  /** Which one, from 1; null: nobody knows. */
  attempt: number | null;
  /** Null: nobody saw it. */
  startedAt: Date | null;
  endedAt: Date | null;
  /** The first line of its error; null: nobody knows. */
  error: string | null;
}

/** Selects jobs of the history. */
export interface HistoryQuery {
  /** Only jobs of this policy. An unknown one is an {@link UnknownPolicyError}. */
  policy?: string | undefined;
  /** Only jobs of this partition. */
  partition?: string | undefined;
  /** Only jobs that ended so. */
  outcome?: Outcome | undefined;
  /** Only jobs that ended since, and those that have not ended. */
  since?: Date | undefined;
  /** A whole number from 1. Default 100. */
  limit?: number | undefined;
}

const [POLICY, PARTITION, OUTCOME, SINCE] = [
  parameter(1, "text"),
  parameter(2, "text"),
  parameter(3, "text"),
  parameter(4, "time"),
];
const WHERE_ASKED = `where (${POLICY} is null or policy = ${POLICY})
  and (${PARTITION} is null or partition = ${PARTITION}) and (${OUTCOME} is null or outcome = ${OUTCOME})
  and (${SINCE} is null or ended_at >= ${SINCE} or ended_at is null)
  order by ended_at desc, id desc limit ${parameter(5, "int")}`;

/** Documented at {@link Operate.history}. */
export async function history(
  context: OperateContext,
  query: HistoryQuery = {},
): Promise<readonly JobHistory[]> {
  checkVerb("history", query, { takes: ["policy", "partition", "outcome", "since", "limit"] });
  const { policy, partition = null, outcome = null, since = null, limit = 100 } = query;
  const asked = [policy ?? null, partition, outcome, since, limit];
  const rows = await rowsOf<JobHistory>(context, "history", WHERE_ASKED, asked, policy);
  return rows.map((row) => ({ ...row, failedAttempts: spelledJson(row.failedAttempts) }));
}
