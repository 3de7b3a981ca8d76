// node scripts/postgres.ts -- node test/chaos/overload.ts --kind row|busy|stopped [--seconds 600] [--each 60]
// Two workers beside a database that is starved again and again, by one of three ways: `row` locks what each heartbeat writes,
// `busy` runs 8 busy processes a core, `stopped` stops all of the server's processes by SIGSTOP. After each, one JSON line: how
// long until a worker leads and a new job has run, how many connections a worker had at most (by the server's own count) and
// how many lines were logged. Exits with 1 if that took longer than 10 s, or if more jobs ran at once than the cap allows.

import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Logger, run, WorkerPreset } from "graphile-worker";
import { addPolicyJob, definePolicy, dispatchPolicyPreset } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { liveLeases } from "../helpers/leases.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";

const CAP = 3;
/** Whose jobs come all the time. */
const ACCOUNT = "a";
const WORKERS = 2;
const BUSY_PER_CORE = 8;
const REST_MS = 10_000;
/** Beside Graphile Worker's pool of 10, and one for the backend that a given up statement ends in. */
const MOST_CONNECTIONS = 10 + 5 + 1;
const RECOVERED_WITHIN_MS = 10_000;

const policy = definePolicy("work", {
  partitionBy: "account",
  gates: ({ concurrency }) => [concurrency({ max: CAP })],
});

if (process.env.OVERLOADED) await work(process.env.OVERLOADED);
else await main();

/** A worker, in a process of its own. It reports its jobs and its log lines. */
async function work(connectionString: string): Promise<void> {
  const say = (what: object) => process.send?.(what);
  const logger = new Logger(() => (level, message) => {
    if (level !== "debug") say({ line: `${level}: ${message}` });
  });
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy] })],
    worker: { connectionString, concurrentJobs: 4, pollInterval: 1000, logger },
  };
  const task = async (payload: unknown) => {
    const { account } = payload as { account: string };
    say({ account, running: 1, at: uptimeMs() });
    await delay(20);
    say({ account, running: -1, at: uptimeMs() });
  };
  await (await run({ preset, taskList: { work: task } })).promise;
}

/** By the clock that all processes of a machine share. */
function uptimeMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

interface Change {
  readonly account: string;
  readonly running: 1 | -1;
  readonly at: number;
}

/** How many jobs ran at once, at most. Messages of two processes come in another order than they were sent. */
function mostAtOnce(changes: readonly Change[]): number {
  let [running, most] = [0, 0];
  for (const change of changes.toSorted((a, b) => a.at - b.at)) {
    running += change.running;
    most = Math.max(most, running);
  }
  return most;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { kind: { type: "string" }, seconds: { type: "string" }, each: { type: "string" } },
  });
  const starve = { row, busy, stopped }[values.kind ?? ""];
  if (!starve) throw new Error(`--kind must be row, busy or stopped; got ${values.kind}`);
  const eachMs = Number(values.each ?? 60) * 1000;
  const until_ = performance.now() + Number(values.seconds ?? 600) * 1000;
  const { url, pool, drop } = await testDatabase();
  const seen = { changes: [] as Change[], lines: [] as string[] };
  const workers = Array.from({ length: WORKERS }, (_, n) => startWorker(url, n, seen));
  const adding = setInterval(
    () => void addPolicyJob(pool, policy, { account: ACCOUNT }).catch(() => {}),
    100,
  );
  let failed = false;
  try {
    await until("a worker leads", () => leads(url));
    while (performance.now() < until_) {
      seen.lines.length = 0;
      let connections = 0;
      const count = setInterval(
        () =>
          void counted(pool).then(
            (n) => (connections = Math.max(connections, n)),
            () => {},
          ),
        500,
      );
      await starve(url, eachMs);
      const ended = performance.now();
      await until(
        "a worker leads, and a new job has run",
        async () => (await leads(url)) && (await runsAJob(pool)),
        {
          withinMs: 120_000,
        },
      );
      const recoveredInMs = Math.round(performance.now() - ended);
      await delay(REST_MS);
      clearInterval(count);
      const { rows } = await pool.query(
        "select count(*)::int as n from graphile_worker.jobs where last_error is not null",
      );
      const round = {
        kind: values.kind,
        recoveredInMs,
        connections,
        failedJobs: rows[0].n,
        mostAtOnce: mostAtOnce(seen.changes),
      };
      console.log(
        JSON.stringify({ ...round, lines: seen.lines.length, log: [...new Set(seen.lines)].slice(0, 12) }),
      );
      failed ||=
        recoveredInMs > RECOVERED_WITHIN_MS ||
        connections > MOST_CONNECTIONS ||
        round.mostAtOnce > CAP ||
        rows[0].n > 0;
    }
  } finally {
    clearInterval(adding);
    await Promise.all(workers.map(stop));
    await drop();
  }
  process.exit(failed ? 1 : 0);
}

function startWorker(url: string, n: number, seen: { changes: Change[]; lines: string[] }): ChildProcess {
  const named = new URL(url);
  named.searchParams.set("application_name", `overloaded ${n}`);
  const child = spawn(process.execPath, [import.meta.filename], {
    env: { ...process.env, OVERLOADED: named.href },
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  child.on("message", (message: Change | { line: string }) => {
    if ("line" in message) seen.lines.push(`${n} ${message.line}`);
    else if (message.account === ACCOUNT) seen.changes.push(message);
  });
  return child;
}

async function stop(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await Promise.race([ended, delay(15_000)]);
  child.kill("SIGKILL");
}

/** The most connections that one worker has. */
async function counted(pool: ReturnType<typeof quietPool>): Promise<number> {
  const { rows } = await pool.query(
    "select count(*)::int as n from pg_stat_activity where application_name like 'overloaded %' group by application_name order by 1 desc limit 1",
  );
  return rows[0]?.n ?? 0;
}

async function leads(url: string): Promise<boolean> {
  const one = quietPool(url, { max: 1, connectionTimeoutMillis: 5000 });
  try {
    return (await liveLeases(one)).length > 0;
  } finally {
    await one.end();
  }
}

async function runsAJob(pool: ReturnType<typeof quietPool>): Promise<boolean> {
  const { id } = await addPolicyJob(pool, policy, { account: `new ${randomUUID()}` });
  await until("it has run", async () => {
    const { rows } = await pool.query("select from dispatch_policy.jobs where id = $1", [id]);
    return rows.length === 0;
  });
  return true;
}

async function row(url: string, ms: number): Promise<void> {
  const holder = quietPool(url, { max: 1 });
  const client = await holder.connect();
  await client.query("begin");
  await table(client, "workers").lock();
  await delay(ms);
  client.release(true);
  await holder.end();
}

async function busy(_: string, ms: number): Promise<void> {
  const idlers = Array.from({ length: BUSY_PER_CORE * os.availableParallelism() }, () =>
    spawn(process.execPath, ["-e", `const end = Date.now() + ${ms}; while (Date.now() < end);`], {
      stdio: "ignore",
    }),
  );
  await Promise.all(idlers.map((one) => new Promise((resolve) => one.once("exit", resolve))));
}

async function stopped(url: string, ms: number): Promise<void> {
  const one = quietPool(url, { max: 1 });
  const { rows } = await one.query(
    "select (regexp_match(pg_read_file('postmaster.pid'), '^\\d+'))[1]::int as pid",
  );
  await one.end();
  const pids = [rows[0].pid as number, ...childrenOf(rows[0].pid)];
  for (const pid of pids) signal(pid, "SIGSTOP");
  await delay(ms);
  for (const pid of [...pids.slice(1), ...pids.slice(0, 1)]) signal(pid, "SIGCONT");
}

function childrenOf(parent: number): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return (
          readFileSync(`/proc/${name}/stat`, "utf8").split(") ").at(-1)?.split(" ")[1] === String(parent)
        );
      } catch {
        return false; // it has ended
      }
    })
    .map(Number);
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // it has ended
  }
}
