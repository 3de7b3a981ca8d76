/** Three worker processes, each with two worker slots, and one limit of four. DATABASE_URL names the database. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { makePolicyUtils } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { makeReport, type Report } from "./policies.ts";

const PROCESSES = 3;
const JOBS = 60;
const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const app = new pg.Client({ connectionString });
await app.connect();
await app.query(
  "create table if not exists runs (job bigint, pid int, at_once int, ended bool default false)",
);
await app.query("truncate runs");

const utils = await makePolicyUtils({ connectionString, policies: [makeReport] }); // creates both schemas
const worker = fileURLToPath(new URL("worker.ts", import.meta.url));
const workers: ChildProcess[] = Array.from({ length: PROCESSES }, () => fork(worker));
const exits = workers.map((child) => once(child, "exit"));
const isLive = async () => (await utils.status()).workers.filter(({ alive }) => alive).length >= PROCESSES;
while (!(await isLive())) await delay(50);

const jobs = Array.from({ length: JOBS }, (_, n): { identifier: string; payload: Report } => ({
  identifier: "make_report",
  payload: { tenant: `tenant ${n % 6}`, region: n % 2 === 0 ? "eu" : "us" },
}));
await utils.addJobs(jobs);
const ended = "select count(*)::int as n from runs where ended";
while ((await app.query<{ n: number }>(ended)).rows[0]!.n < JOBS) await delay(50);

for (const child of workers) child.disconnect();
await Promise.all(exits);
const { rows } = await app.query<{ most: number; processes: number }>(
  "select max(at_once) as most, count(distinct pid)::int as processes from runs",
);
console.log(`${JOBS} reports ran in ${rows[0]!.processes} processes, at most ${rows[0]!.most} at once`);
await utils.release();
await app.end();
