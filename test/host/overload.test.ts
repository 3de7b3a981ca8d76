// A database that does not answer for a while: connections stay few, the log stays short, and the worker recovers by itself.
import { readFileSync } from "node:fs";
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { definePolicy } from "../../src/index.ts";
import { liveLeases } from "../helpers/leases.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  partitionBy: "account",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});
/** A heartbeat is given up after a second, and then after two at most. */
const HASTY = {
  preset: { workerStaleAfter: "6 seconds", workerHeartbeatInterval: "2 seconds", loopHeartbeat: "1 second" },
} as const;

/** The heartbeats under way, by the server's own count. */
const beats = async (pool: pg.Pool) =>
  (
    await pool.query(
      "select pid from pg_stat_activity where strpos(query, '_beat(') > 0 and pid <> pg_backend_pid() and datname = current_database() and state = 'active'",
    )
  ).rows as { pid: number }[];

const failures = ({ log }: TestWorker) => log.filter(({ message }) => message.startsWith("Heartbeat failed"));
const leads = async ({ pool }: TestWorker) => (await liveLeases(pool)).length > 0;

/** Locks what each heartbeat writes. Returns what ends that. */
async function holdsTheRow(t: ExecutionContext, { pool }: TestWorker): Promise<() => Promise<void>> {
  const holder = await pool.connect();
  await holder.query("begin");
  await table(holder, "workers").lock();
  let held = true;
  const free = async () => {
    if (held) holder.release(true);
    held = false;
  };
  t.teardown(free);
  return free;
}

test("heartbeats that wait for a lock do not pile up, and the worker leads again once it is gone", async (t) => {
  const worker = await startWorker(t, { policies: [work], tasks: { work: async () => {} }, ...HASTY });
  await until("it leads", () => leads(worker));
  const free = await holdsTheRow(t, worker);
  let most = 0;
  await until("four heartbeats have failed, and its lease has ended", async () => {
    most = Math.max(most, (await beats(worker.pool)).length);
    return failures(worker).length >= 4 && !(await leads(worker));
  });
  t.is(most, 1, "no second one was begun");
  await free();
  await worker.utils.addJob(work, { account: "a" });
  await worker.sees("job:success");
  await until("it leads again", () => leads(worker));
  const warnings = failures(worker).filter(({ level }) => level === "warning");
  const kinds = new Set(warnings.map(({ message }) => message.replace(/\d+/g, "0")));
  t.is(warnings.length, kinds.size, "each kind of failure is told once");
  await until("it says so", () =>
    worker.log.some(({ message }) => /^Heartbeats work again, after \d+ failures in \d+ s$/.test(message)),
  );
});

/** Whether this machine shows that process, so that it can be stopped. A server in a container is elsewhere. */
function isHere(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("postgres");
  } catch {
    return false;
  }
}

test("a backend that stops in the middle of a heartbeat is not joined by others", async (t) => {
  const worker = await startWorker(t, { policies: [work], tasks: { work: async () => {} }, ...HASTY });
  await until("it leads", () => leads(worker));
  const free = await holdsTheRow(t, worker);
  const { pid } = await until("a heartbeat waits", async () => (await beats(worker.pool))[0]);
  if (!isHere(pid)) return t.pass("the server's processes are elsewhere");
  process.kill(pid, "SIGSTOP");
  const goOn = () => process.kill(pid, "SIGCONT");
  let most = 0;
  try {
    await until("four heartbeats have failed", async () => {
      most = Math.max(most, (await beats(worker.pool)).length);
      return failures(worker).length >= 4;
    });
  } finally {
    goOn();
  }
  t.is(most, 1, "no second one was begun");
  await free();
  await worker.utils.addJob(work, { account: "a" });
  await worker.sees("job:success");
  await until("it leads again", () => leads(worker));
});
