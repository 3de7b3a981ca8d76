import { counted } from "../../counted.ts";
import type { SchemaState } from "../../db/migrate.ts";

/** The ids of all findings. docs/operating.md explains each. */
export const FINDING_IDS = [
  "schema-missing",
  "schema-older",
  "schema-newer",
  "index-broken",
  "public-grant",
  "replica",
  "transaction-pooler",
  "notify-queue",
  "old-snapshot",
  "idle-transaction",
  "autovacuum-off",
  "autovacuum-behind",
  "clock-off",
  "commits-early",
  "asynchronous-standby",
  "promoted",
  "fixed-ids",
  "locked-idle",
  "no-worker",
  "orphaned",
  "not-fetched",
  "no-preset",
  "silent-worker",
  "two-definitions",
  "older-definition",
  "nobody-ticks",
  "no-crontab-tick",
  "crontab-tick-waits",
  "policy-off",
  "policy-paused",
  "everything-paused",
  "breaker-open",
  "misspelt-limit",
  "quarantined",
  "hung-run",
  "dropped",
  "lost-slots",
  "small-way-failed",
  "not-checked",
] as const;

/** What a finding is about. It does not change with releases. */
export type FindingId = (typeof FINDING_IDS)[number];

/** `critical`: jobs do not run, or limits may not hold. `warning`: it gets worse if nobody acts. `info`: worth knowing. */
export type Severity = "critical" | "warning" | "info";

/** Something that is wrong, and what mends it. */
export interface Finding {
  /** What it is about. docs/operating.md explains each id. */
  id: FindingId;
  severity: Severity;
  /** The policy that it is about. Missing: it is about no single one. */
  policy?: string;
  /** What is wrong, with its figures. */
  sentence: string;
  /** The SQL, the command or the code that mends it. */
  mend: string;
}

/** From when on `doctor` reports something. docs/operating.md lists the defaults. */
export interface DoctorThresholds {
  /** The part of PostgreSQL's notification queue that is in use, 0 to 1. Default 0.25. */
  notifyQueue: number;
  /** The age of a transaction that keeps dead rows from being removed, in milliseconds. Default 1 minute. */
  oldSnapshotMs: number;
  /** How many transactions have written since, where its age is not known: of slots and standbys. Default 100,000. */
  oldSnapshotTransactions: number;
  /** How long a session with locks on this package's tables is idle in its transaction, in milliseconds. Default 1 minute. */
  idleTransactionMs: number;
  /** How many dead rows a table has, while they are more than half of the live ones. Default 100,000. */
  deadRows: number;
  /** How far a clock is from the database's, in milliseconds. Default 1 second. */
  clockMs: number;
  /** How long a job that could start is not fetched, though workers have room, in milliseconds. Default 2 minutes. */
  unfetchedMs: number;
  /** How long due work waits for a tick, in milliseconds. Default 2 minutes. */
  untickedMs: number;
  /** How long ago the crontab's tick came last, in milliseconds. Default 5 minutes. */
  crontabMs: number;
  /** How long ago another server was promoted, in milliseconds. Default 1 day. */
  promotedMs: number;
  /** How long more jobs are locked than a worker runs at once, in milliseconds. Default 6 minutes, as a local queue keeps them for 5. */
  lockedMs: number;
  /** How long ago a job last ended in a worker without this package, in milliseconds. Default 1 hour. */
  noPresetMs: number;
}

export const THRESHOLDS: DoctorThresholds = {
  notifyQueue: 0.25,
  oldSnapshotMs: 60_000,
  oldSnapshotTransactions: 100_000,
  idleTransactionMs: 60_000,
  deadRows: 100_000,
  clockMs: 1000,
  unfetchedMs: 120_000,
  untickedMs: 120_000,
  crontabMs: 300_000,
  promotedMs: 86_400_000,
  lockedMs: 360_000,
  noPresetMs: 3_600_000,
};

/** What a check looks at. */
export interface Patient {
  readonly thresholds: DoctorThresholds;
  readonly state: SchemaState;
  /** This package's schema, unquoted. */
  readonly schema: string;
  /** Whether this connection goes through a pooler in transaction mode. */
  readonly isPooled: boolean;
  /** How far the clock of this process is behind the database's, and how wrong that may be, both in milliseconds. */
  readonly clock: { readonly behindMs: number; readonly errorMs: number };
  /** Runs a statement, which may write :DISPATCH_POLICY_SCHEMA, :DISPATCH_POLICY_INTERNAL and :GRAPHILE_WORKER_SCHEMA. */
  ask<T>(statement: string, values?: readonly unknown[]): Promise<readonly T[]>;
}

/** Looks for one thing. Its name is said if it fails. */
export type Check = (patient: Patient) => Promise<readonly Finding[]>;

/** The one value as a list, or an empty list. */
export function where<T>(condition: boolean, value: () => T): readonly T[] {
  return condition ? [value()] : [];
}

/** "3 min" */
export function ago(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** A number with its noun that was counted up to `most`: "1 job", "1000 or more jobs". */
export const upTo = (count: number, most: number, noun: string): string =>
  count < most ? counted(count, noun) : `${most} or more ${noun}s`;

/** Of an error that somebody else threw. */
export const firstLine = (text: string): string => text.split("\n", 1)[0]?.slice(0, 200) ?? "";
