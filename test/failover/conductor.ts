// One run: a primary and a standby, workers and adders, a failure and a promotion a round, then calm; and the verdict.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { runMigrations } from "graphile-worker";
import { makePolicyUtils } from "../../src/index.ts";
import { quietPool } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, workerNameOf } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type Fact, follow, type How, now, openLog } from "./events.ts";
import { type FaultName, faultOf } from "./faults.ts";
import { judge, type Verdict } from "./judge.ts";
import { LINES, POLICIES } from "./policies.ts";
import { type Member, startMember } from "./processes.ts";

export interface Course {
  /** Whether commits wait for the standby. */
  readonly mode: "sync" | "async";
  /** With "sync": what commits wait for, and whether those that wait are cancelled. Then they count as asynchronous ones. */
  readonly waits: "on" | "remote_apply" | "cancelled";
  /** Servers sync to disk. */
  readonly durable: boolean;
  /** So many seconds the clock of each second server is ahead. */
  readonly aheadSeconds: number;
  /** How the primary fails, a round each. */
  readonly how: readonly How[];
  /** For so long before it fails the standby receives nothing. */
  readonly lagMs: number;
  /** Whether all jobs end before the lag begins: those that run when the primary fails are then unknown to the next one. */
  readonly rests: boolean;
  /** Between the failure and the promotion. */
  readonly outageMs: number;
  /** For so long after the promotion of a round "zombie" some processes still have the old primary. */
  readonly zombieMs: number;
  /** How long work takes, at least and at most. */
  readonly workMs: readonly [number, number];
  /** How long to wait until all is as before. */
  readonly patienceMs: number;
  readonly fault?: FaultName | undefined;
  readonly say: (what: string) => void;
}

export const COURSE: Course = {
  ...{
    mode: "sync",
    waits: "on",
    durable: false,
    aheadSeconds: 0,
    how: ["kill"],
    lagMs: 0,
    rests: false,
    outageMs: 1000,
    zombieMs: 5000,
    workMs: [200, 1000],
  },
  ...{ patienceMs: 90_000, say: () => {} },
};

const WORKERS = ["worker 0", "worker 1"];
/** Processes with a 0 are those that still have the old primary in a round "zombie". */
const ADDERS = ["adder 0", "adder 1"];
const STEADY_MS = 4000;
const FEEDS_EVERY_MS = 150;
/** An add is answered within this. */
const SETTLES_MS = 300;
/** The slots of what nobody runs are to be found within this, once nothing starts or ends any more. */
const QUIET_MS = 20_000;

/** Returns the verdict, and the log by which it was found. */
export async function failover(course: Course): Promise<{ verdict: Verdict; file: string }> {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "failover-")), "events.jsonl");
  const log = openLog(file);
  const fault: Partial<ReturnType<typeof faultOf>> = course.fault ? faultOf(course.fault) : {};
  const { mode, waits, durable, aheadSeconds } = course;
  const commit = mode === "async" ? "off" : waits === "cancelled" ? "on" : waits;
  const cluster = await startCluster({ commit, durable, aheadSeconds }, async (url) => {
    const pool = quietPool(url);
    await runMigrations({ pgPool: pool, logger: silent });
    const policies = Object.values(POLICIES);
    const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
    await utils.release();
    await fault.plant?.(pool);
    await pool.end();
  });
  const members: Member[] = [];
  const seen = watch(file, members);
  try {
    const { workMs, say } = course;
    const { port } = cluster.primary;
    for (const name of WORKERS) {
      const how = { parameters: fault.parameters ?? "", dies: fault.dies ?? false };
      members.push(await startMember("worker", { file, name, workMs, ...how }, port, log));
    }
    for (const name of ADDERS)
      members.push(
        await startMember("adder", { file, name, workMs, parameters: "", dies: false }, port, log),
      );
    await until("all workers run jobs", () => seen.silentSince(0).length === 0, { withinMs: 120_000 });
    say(`${course.mode}, lag ${course.lagMs} ms, ${file}`);
    for (const [n, how] of course.how.entries()) {
      if (n > 0) await cluster.seed();
      await round({ ...{ n, how, course, cluster, members, log, seen } });
    }
    await delay(STEADY_MS / 2);
    seen.feed(false);
    log(await calm(cluster, seen));
  } finally {
    seen.end();
    await Promise.all(members.map(({ end }) => end()));
    await cluster.stop();
  }
  return { verdict: judge(file, waits === "cancelled" ? "async" : mode), file };
}

interface Round {
  readonly n: number;
  readonly how: How;
  readonly course: Course;
  readonly cluster: Cluster;
  readonly members: readonly Member[];
  readonly log: (fact: Fact) => void;
  readonly seen: ReturnType<typeof watch>;
}

async function round({ n, how, course, cluster, members, log, seen }: Round): Promise<void> {
  await delay(STEADY_MS * (0.7 + Math.random() * 0.6));
  const pace = seen.pace(STEADY_MS / 2);
  const old = cluster.primary;
  const routes = members.map(({ route }) => route);
  if (course.rests) {
    seen.feed(false);
    await until("all jobs have ended", async () => isEmpty(await countsOf(cluster)), { everyMs: 200 });
  }
  log({ k: "round", n, how, pace });
  if (course.lagMs > 0) {
    const isAsync = course.mode === "async" || course.waits === "cancelled";
    if (!isAsync) {
      seen.feed(false); // an add that waits for its commit has its partition locked, so nothing would start
      await delay(SETTLES_MS);
    }
    cluster.cutReplication();
    log({ k: "lagging", n });
    if (isAsync) seen.feed(true);
    if (course.waits === "cancelled") await cancelWaits(cluster, course.lagMs);
    else await delay(course.lagMs);
  }
  let kill = () => {};
  if (how === "zombie") cluster.cutReplication();
  else {
    if (how === "kill") for (const route of routes) route.refuse();
    if (how === "swallow") for (const route of routes) route.swallow();
    kill = await cluster.signal(old, how === "stop" ? "SIGSTOP" : "SIGKILL");
  }
  log({ k: "down", n });
  await delay(course.outageMs * (0.5 + Math.random()));
  kill(); // one that stands still must not go on beside the next one
  const stale = how === "zombie" ? members.filter(({ name }) => name.endsWith("0")) : [];
  await cluster.promote();
  const promotedAt = now();
  log({ k: "promoted", n });
  const { port } = cluster.primary;
  for (const member of members) {
    if (stale.includes(member)) continue;
    member.route.forward(port);
    if (how !== "swallow") member.route.reset();
  }
  log({ k: "switched", n });
  if (how === "zombie") {
    await delay(course.zombieMs);
    await cluster.signal(old, "SIGKILL");
    for (const { route } of stale) {
      route.forward(port);
      route.reset();
    }
    log({ k: "allSwitched", n });
  }
  seen.forget();
  seen.feed(true);
  const isBack = () => seen.silentSince(promotedAt).length === 0 && seen.pace(1500) >= 0.8 * pace;
  const seconds = await until("all is as before", isBack, { withinMs: course.patienceMs, everyMs: 50 }).then(
    () => (now() - promotedAt) / 1000,
    () => null,
  );
  await old.stop();
  log({ k: "back", n, seconds, silent: seen.silentSince(promotedAt) });
  const after = seconds === null ? `not within ${course.patienceMs} ms` : `after ${seconds.toFixed(1)} s`;
  course.say(`round ${n}, ${how}: ${pace.toFixed(0)} jobs started a second, and again ${after}`);
}

const CANCELS_EVERY_MS = 50;

/** As an operator does whose standby is gone: the commit is acknowledged, and only here. */
async function cancelWaits(cluster: Cluster, forMs: number): Promise<void> {
  const waiting = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
  for (const from = now(); now() - from < forMs; await delay(CANCELS_EVERY_MS)) await cluster.ask(waiting);
}

/** Follows the log, and tells adders what lacks. */
function watch(file: string, members: readonly Member[]) {
  const read = follow(file);
  const waiting = new Map<string, string>(); // id to line, of acknowledged jobs that have not ended
  const lastStart = new Map<string, number>();
  let starts: number[] = [];
  let movedAt = now();
  let feeds = true;

  function look(): void {
    for (const event of read()) {
      if (event.k === "ack") for (const id of event.ids) waiting.set(id, event.line);
      if (event.k === "end") waiting.delete(event.id);
      if (event.k === "end" || event.k === "start") movedAt = event.t;
      if (event.k !== "start") continue;
      starts.push(event.t);
      lastStart.set(event.w, event.t);
    }
    starts = starts.filter((t) => t > now() - 10_000);
  }

  function tell(): void {
    look();
    const adders = members.filter(({ kind }) => kind === "adder");
    const rooms = LINES.map(({ task, key, depth }) => {
      const line = `${task}/${key}`;
      const lacks = depth - [...waiting.values()].filter((one) => one === line).length;
      return { line, jobs: Math.max(0, Math.floor(lacks / adders.length)) };
    });
    for (const adder of adders) adder.send(feeds ? rooms : []);
  }
  const timer = setInterval(tell, FEEDS_EVERY_MS);

  return {
    /** Starts a second, lately. */
    pace(ms: number): number {
      look();
      return (starts.filter((t) => t > now() - ms).length * 1000) / ms;
    },
    silentSince(t: number): string[] {
      look();
      return WORKERS.filter((name) => (lastStart.get(name) ?? Number.NEGATIVE_INFINITY) <= t);
    },
    /** What was lost is not waited for. */
    forget: () => waiting.clear(),
    /** Whether adders add. */
    feed(on: boolean): void {
      feeds = on;
      tell();
    },
    end: () => clearInterval(timer),
    quietMs(): number {
      look();
      return now() - movedAt;
    },
  };
}

type Counts = Readonly<Record<string, number>>;

async function countsOf(cluster: Cluster): Promise<Counts> {
  const tasks = Object.keys(POLICIES).map((task) => `'${task}'`);
  const [counts] = await cluster.ask(`select
    (select count(*)::int from dispatch_policy.staged_jobs) as staged,
    (select count(*)::int from dispatch_policy.in_flight_jobs) as "inFlight",
    (select coalesce(sum(in_flight), 0)::int from dispatch_policy.limiters) as counted,
    (select count(*)::int from graphile_worker.jobs where task_identifier in (${tasks})) as jobs`);
  return counts;
}

const isEmpty = (counts: Counts) => Object.values(counts).every((count) => count === 0);

/** What is left, when nothing is or nothing has moved for long. */
async function calm(cluster: Cluster, seen: ReturnType<typeof watch>): Promise<Fact> {
  for (;;) {
    const counts = await countsOf(cluster);
    if (isEmpty(counts)) return { k: "left", counts, rows: [] };
    if (seen.quietMs() > QUIET_MS) {
      const names = [workerNameOf(), ...["in_flight_jobs", "staged_jobs", "workers"].map(nameOf)];
      const rows = await Promise.all(names.map((name) => cluster.ask(`select * from ${name} limit 20`)));
      return { k: "left", counts, rows: rows.flat() };
    }
    await delay(500);
  }
}
