// node test/failover/main.ts [--mode sync|async] [--rounds 4] [--how kill,stop,swallow,zombie] [--lag MS] [--outage MS]
//   [--zombie MS] [--work MS,MS] [--rests] [--patience SECONDS] [--durable] [--waits on|remote_apply|cancelled] [--ahead SECONDS]
//   [--fault NAME]
// Prints a line for each failure, a table, and what went wrong. Exits with 1 when anything did. The log has every event.
// How a primary fails: kill (SIGKILL to all of its processes, connections are reset), stop (SIGSTOP: nothing answers, until it is
// killed before the promotion), swallow (its connections stay open, and nothing passes, for ever), zombie (it lives on beside the
// new primary, and some processes still have it for `--zombie` ms).
// With --lag the standby receives nothing for so long before that. Then adds of "async" are lost, and those of "sync" wait. With
// --rests all jobs end before the lag, so that the next primary has never heard of those that run.
// With --durable the servers sync to disk. With --waits remote_apply a commit waits until the standby shows it, and with cancelled
// an operator cancels what waits for the standby. With --ahead the clock of each second server is so far ahead.
// With --fault the other options default to the course in which that fault shows.
import { parseArgs } from "node:util";
import { COURSE, failover } from "./conductor.ts";
import type { How } from "./events.ts";
import { FAULTS, type FaultName, faultOf } from "./faults.ts";

const MOST_PROBLEMS = 20;
const text = { type: "string" } as const;
const { values } = parseArgs({
  options: {
    ...{
      mode: text,
      rounds: text,
      how: text,
      lag: text,
      outage: text,
      zombie: text,
      work: text,
      patience: text,
    },
    ...{ fault: text, waits: text, ahead: text },
    durable: { type: "boolean" },
    rests: { type: "boolean" },
  },
});
const fault = values.fault as FaultName | undefined;
if (fault !== undefined && !(fault in FAULTS))
  throw new Error(`--fault must be one of ${Object.keys(FAULTS).join("; ")}; got ${fault}`);
const base = { ...COURSE, ...(fault && faultOf(fault).course) };
const hows = (values.how?.split(",") as How[] | undefined) ?? base.how;
const rounds = Number(values.rounds ?? hows.length);
const started = performance.now();
const [least, most] = values.work?.split(",").map(Number) ?? base.workMs;

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => process.exit(130));

const { verdict } = await failover({
  mode: (values.mode as "sync" | "async" | undefined) ?? base.mode,
  waits: (values.waits as (typeof COURSE)["waits"] | undefined) ?? base.waits,
  durable: values.durable ?? base.durable,
  aheadSeconds: Number(values.ahead ?? base.aheadSeconds),
  how: Array.from({ length: rounds }, (_, n) => hows[n % hows.length]!),
  lagMs: Number(values.lag ?? base.lagMs),
  rests: values.rests ?? base.rests,
  outageMs: Number(values.outage ?? base.outageMs),
  zombieMs: Number(values.zombie ?? base.zombieMs),
  workMs: [least!, most ?? least!],
  patienceMs: values.patience === undefined ? base.patienceMs : Number(values.patience) * 1000,
  fault,
  say: (what) => console.log(`${((performance.now() - started) / 1000).toFixed(1).padStart(7)} ${what}`),
});
for (const [name, value] of verdict.table) console.log(`${name.padEnd(34)} ${value}`);
for (const problem of verdict.problems.slice(0, MOST_PROBLEMS)) console.log(`# ${problem}`);
if (verdict.problems.length > 0) console.log(`# ${verdict.problems.length} problems`);
process.exit(verdict.problems.length > 0 ? 1 : 0);
