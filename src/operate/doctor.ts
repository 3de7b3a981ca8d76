import { check, checkOptions, numberFromZero } from "../checks/options.ts";
import { type SchemaState, schemaState } from "../db/migrate.ts";
import { sharesSessions } from "../db/pooler.ts";
import { rethrowPlainly } from "../db/rethrow-plainly.ts";
import { withSchemas } from "../db/sql-files.ts";
import type { OperateContext } from "./call.ts";
import { admissionChecks, admissionOfPolicies } from "./doctor/admission.ts";
import { failoverChecks, serverFailoverChecks } from "./doctor/failover.ts";
import {
  type Check,
  type DoctorThresholds,
  type Finding,
  type Patient,
  type Severity,
  THRESHOLDS,
} from "./doctor/finding.ts";
import { schemaChecks, versionChecks } from "./doctor/schema.ts";
import { serverChecks, tableChecks } from "./doctor/server.ts";
import { snapshotChecks } from "./doctor/snapshots.ts";
import { tickChecks, ticksOfPolicies } from "./doctor/ticks.ts";
import { workerChecks, workersOfPolicies } from "./doctor/workers.ts";

export type { DoctorThresholds, Finding, FindingId, Severity } from "./doctor/finding.ts";

/** The options of `doctor`. */
export interface DoctorOptions {
  /** From when on it reports something. Default: what docs/operating.md lists. */
  thresholds?: { [K in keyof DoctorThresholds]?: DoctorThresholds[K] | undefined } | undefined;
}

const SEVERITIES: readonly Severity[] = ["critical", "warning", "info"];

/** The whole examination is one transaction that cannot write, with plans that use indexes whatever the statistics say. */
const SETTINGS = [
  "set transaction read only",
  "set local search_path = pg_catalog, pg_temp",
  "set local enable_seqscan = off",
  "set local jit = off",
  "set local statement_timeout = '10s'",
].join("; ");

/** Documented at {@link Operate.doctor}. */
export async function doctor(
  context: OperateContext,
  options: DoctorOptions = {},
): Promise<readonly Finding[]> {
  return findings(context, readThresholds(options), checksFor);
}

/** What is about one policy. It asks no more than that takes. */
export async function findingsAbout(context: OperateContext, policy: string): Promise<readonly Finding[]> {
  const checks = [...workersOfPolicies, ...ticksOfPolicies, ...admissionOfPolicies];
  const found = await findings(context, THRESHOLDS, ({ found }) => (found === null ? [] : checks));
  return found.filter((finding) => finding.policy === policy || finding.id === "not-checked");
}

/** The gravest first. */
async function findings(
  context: OperateContext,
  thresholds: DoctorThresholds,
  checksOf: (state: SchemaState) => readonly Check[],
): Promise<readonly Finding[]> {
  const found = await examined(context, thresholds, async (patient, alone) => {
    const findings: Finding[] = [];
    for (const one of checksOf(patient.state))
      findings.push(...(await alone(() => one(patient)).catch((error) => [notChecked(one, error)])));
    return findings;
  });
  return SEVERITIES.flatMap((severity) => found.filter((finding) => finding.severity === severity));
}

/** Runs a callback within the transaction of an examination. If what it runs by `alone` fails, only that is undone. */
export async function examined<T>(
  { withPgClient, engine }: OperateContext,
  thresholds: DoctorThresholds,
  callback: (patient: Patient, alone: <R>(run: () => Promise<R>) => Promise<R>) => Promise<T>,
): Promise<T> {
  const { schemaName: schema } = engine;
  const isPooled = await sharesSessions(engine, { withPgClient });
  return withPgClient(async (client) => {
    const clock = await engine.clockBehindMs(client);
    return engine.inTransaction(client, async () => {
      await client.query(SETTINGS);
      const state = await schemaState(client, schema).catch((error) => rethrowPlainly(error, schema, client));
      const names = { own: schema, worker: state.workerSchema };
      const ask: Patient["ask"] = (statement, values = []) =>
        engine.ask(client, withSchemas(statement, names), [...values]);
      return callback({ thresholds, state, isPooled, clock, schema, ask }, (run) =>
        engine.inSavepoint(client, run),
      );
    });
  });
}

/** Without a schema there is nothing else to look at. */
export function checksFor({ found }: SchemaState): readonly Check[] {
  const always = [...versionChecks, ...serverChecks, ...serverFailoverChecks];
  if (found === null) return always;
  return [
    ...always,
    ...schemaChecks,
    ...tableChecks,
    ...snapshotChecks,
    ...workerChecks,
    ...failoverChecks,
    ...tickChecks,
    ...admissionChecks,
  ];
}

function notChecked(one: Check, error: unknown): Finding {
  const { message } = error as Error;
  return {
    id: "not-checked",
    severity: "info",
    sentence: `The check ${one.name} failed: ${message}`,
    mend: "Ask as the role that owns the schemas, and with the package's version that the workers have.",
  };
}

/** @throws {ArgumentError} for an unknown threshold, or one that is no number from 0 */
function readThresholds(options: DoctorOptions): DoctorThresholds {
  checkOptions("doctor", options, ["thresholds"]);
  const given = Object.entries(options.thresholds ?? {}).filter(([, value]) => value !== undefined);
  checkOptions("doctor: thresholds", options.thresholds ?? {}, Object.keys(THRESHOLDS));
  for (const [key, value] of given) check(`doctor: thresholds.${key}`, value, numberFromZero);
  return { ...THRESHOLDS, ...Object.fromEntries(given) };
}
