import { parseArgs } from "node:util";
import { makeEngine } from "../db/engine.ts";
import { looking } from "../db/looking.ts";
import { ArgumentError } from "../errors.ts";
import { type Answer, ask, type ExplainedGate } from "../operate/explain.ts";
import type { PartitionTarget } from "../operate/targets.ts";
import { schemaOf } from "../settings.ts";
import { CONNECTION_OPTIONS, connectionOf } from "./connection.ts";

/** Says why a job, or a partition's next job, waits. */
export const explainCommand = {
  summary: "say why a job or a partition waits, and for what",
  help: `\
  ID                     the job's id, staged or Graphile Worker's; or instead of it:
  --policy NAME          the partition's policy; default: none
  --partition KEY        the partition's key; default: none
  --json                 print the whole answer as JSON; default: off`,
  async run(args: string[]): Promise<void> {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        ...CONNECTION_OPTIONS,
        policy: { type: "string" },
        partition: { type: "string" },
        json: { type: "boolean" },
      },
    });
    const target = targetOf(positionals, values);
    const { connectionString, policySchema } = connectionOf(values);
    const engine = makeEngine(schemaOf(policySchema));
    const it = await looking(connectionString, (withPgClient) => ask({ engine, withPgClient }, target));
    process.stdout.write(values.json ? `${JSON.stringify(it)}\n` : inWords(it));
  },
};

function targetOf(
  [id, ...others]: readonly string[],
  { policy, partition }: { policy?: string; partition?: string },
): { id: string } | PartitionTarget {
  if (others.length === 0) {
    if (id !== undefined && policy === undefined && partition === undefined) return { id };
    if (id === undefined && policy !== undefined && partition !== undefined) return { policy, partition };
  }
  throw new ArgumentError("explain: give one job's id, or --policy NAME and --partition KEY");
}

function inWords(it: Answer): string {
  const what = it.state === "waiting" || it.state === "idle" ? "" : ` ${it.id}`;
  const head = [
    `${it.partition ? `${it.policy}/${it.partition}` : (it.policy ?? "")}${what}`.trim(),
    it.state,
  ];
  if (it.reason) head.push(it.reason);
  return `${head.join("  ")}\n${it.sentence}\n${it.gates.map(line).join("")}`;
}

/** One gate on a line, and a line for each job that occupies a slot of one without room. */
function line({ gate, key, limit, free, lacks, nextAt, setBy, holders }: ExplainedGate): string {
  const left =
    "max" in limit
      ? `${limit.max === null ? "no bound" : `${free} of ${limit.max} slots free`}`
      : `${round(free ?? 0)} of ${round(limit.capacity)} tokens, ${round(limit.rate)} per ${round(limit.per)} s`;
  const set = setBy ? `; set by ${setBy.by}${setBy.until ? ` until ${setBy.until.toISOString()}` : ""}` : "";
  const next = nextAt ? `; at ${nextAt.toISOString()}` : "";
  return [
    `${lacks ? "  x" : "  -"} ${gate}${key === null ? "" : ` of ${key}`}: ${left}${next}${set}\n`,
    ...holders.map(
      ({ jobId, partition, admittedAt, workerId }) =>
        `      job ${jobId} of ${partition} since ${admittedAt.toISOString()}${workerId ? `, ${workerId}` : ""}\n`,
    ),
  ].join("");
}

const round = (value: number) => Math.round(value * 100) / 100;
