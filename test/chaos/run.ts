// One chaos run: a server of its own, processes, trouble, then calm; and the verdict.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { startPostgres } from "../../scripts/postgres/start.ts";
import { makePolicyUtils, type PolicyUtils } from "../../src/index.ts";
import { type TestDatabase, testDatabase } from "../helpers/database.ts";
import { random } from "../helpers/random.ts";
import { silent } from "../helpers/silent.ts";
import { type FaultName, plant } from "../races/race/faults.ts";
import { tellBurials } from "./burials.ts";
import { Conductor, type Deeds } from "./conductor.ts";
import { adoptions, copies } from "./copies.ts";
import { Fleet } from "./fleet.ts";
import { Judge } from "./judge.ts";
import { leftovers, whatWaits } from "./leftovers.ts";
import { otherLimits, readLimits } from "./limits.ts";
import { logBurials, logCopies, logLimits } from "./tables.ts";
import { unlockOutsiders, wayOut } from "./way-out.ts";
import {
  accounts,
  DEFINITIONS,
  FIRST_RELEASE,
  LIMITED,
  type Limits,
  nextRelease,
  policiesOf,
  regionOf,
  TASKS,
  type TaskName,
  TOGETHER,
} from "./world.ts";

/** Less than the server's connections, so that they can be taken. */
const CONNECTIONS = 100;
/** 100 in 10 minutes. */
const SECONDS_PER_HIT = 6;
/**
 * Dead workers are noticed, failures that were not parked wait for Graphile Worker's own back-off, and a machine that is
 * busy beside this takes its time.
 */
const STALLED_AFTER_MS = 90_000;
/** After the first problem, since a second one may say more. */
const GOES_ON_MS = 10_000;

export interface Course {
  readonly seconds: number;
  readonly seed: number;
  readonly fault?: FaultName | undefined;
  /** Whether it ends with an uninstall. Else some calls have a callback: an uninstall would refuse while a group is open. */
  readonly out: boolean;
  readonly say: (what: string) => void;
}

export interface Verdict {
  readonly seed: number;
  readonly seconds: number;
  /** What went wrong; empty: nothing. */
  readonly problems: readonly string[];
  readonly jobs: number;
  readonly executions: number;
  /** Runs of a job that had run to its end, or into its process's end, before. */
  readonly duplicates: number;
  /** Runs past a cap beside those of a pool that counted as dead. */
  readonly besideDead: number;
  readonly deeds: Deeds;
  /** How often another definition came into force, of all policies. */
  readonly definitions: number;
  /** How many callbacks of job groups have run. */
  readonly callbacks: number;
  /** How many jobs came back from worker pools that ran their share already. */
  readonly requeued: number;
  readonly met: Readonly<Record<string, number>>;
  readonly mostAtOnce: number;
  /** Of work and renderings, which share a limit. */
  readonly mostTogether: number;
  /** Of an account with a limit by context. */
  readonly mostAtOnceByContext: number;
  readonly drainedInSeconds: number | null;
}

export async function chaos(course: Course): Promise<Verdict> {
  const server = await startPostgres({
    own: true,
    restartable: true,
    durable: true,
    settings: { max_connections: String(CONNECTIONS) },
  });
  process.env.DATABASE_URL = server.url; // where testDatabase looks
  try {
    return await inDatabase(await testDatabase(), server.url, server.restart!, course);
  } finally {
    await server.stop();
  }
}

async function inDatabase(
  database: TestDatabase,
  serverUrl: string,
  restart: () => Promise<void>,
  { seconds, seed, fault, out, say }: Course,
): Promise<Verdict> {
  await database.pool.query("create table chaos_application as select 1 as id, 0 as jobs");
  const policies = Object.values(policiesOf(FIRST_RELEASE));
  const utils = await makePolicyUtils({ pgPool: database.pool, policies, logger: silent }); // declares the policies
  const { region, max } = LIMITED;
  await utils.setLimit({ policy: "work", gate: "concurrency", where: { region }, set: { max } });
  await logCopies(database.pool);
  await logBurials(database.pool);
  await logLimits(database.pool);
  if (fault) await plant(database, fault);
  const numbers = random(seed);
  const judge = new Judge();
  const fleet = new Fleet(database.url, judge, numbers, !out);
  const admin = new pg.Pool({ connectionString: serverUrl, max: 1 });
  admin.on("error", () => {});
  const conductor = new Conductor({ fleet, random: numbers, admin, pool: database.pool, restart, say });
  let drainedInSeconds: number | null = null;
  let definitions = 0;
  try {
    await fleet.start();
    await conductor.begin();
    const end = Date.now() + seconds * 1000;
    await conductor.play(() => Date.now() > Math.min(end, judge.failedAt + GOES_ON_MS));
    ({ definitions } = await readLimits(database.pool));
    if (judge.problems.length === 0)
      drainedInSeconds = out
        ? await wayOut({ database, fleet, judge, random: numbers, say })
        : await calm(utils, database, fleet, judge, say);
    else await tellBurials(database.pool, fleet.lives);
    judge.limitsWere(await readLimits(database.pool));
  } finally {
    await fleet.killAll();
    await utils.release();
    await admin.end();
    await database.pool.end();
  }
  if (drainedInSeconds !== null) judge.conclude();
  else judge.judgeLimits();
  const { deeds } = conductor;
  const enough = Math.floor(seconds / SECONDS_PER_HIT);
  if (drainedInSeconds !== null) {
    judge.hit(deeds.hits, enough);
    judge.changed(definitions);
    judge.sharesWereFull();
    judge.newestWon(fleet.met["run of an older job cancelled"] ?? 0, Math.floor(seconds / 120));
    if (!out) judge.groupsEnded();
  }
  const { problems, executions, duplicates, besideDead } = judge;
  return {
    ...{
      seed,
      seconds,
      problems,
      jobs: judge.stagedCount,
      executions,
      duplicates,
      besideDead,
      deeds,
      definitions,
      callbacks: judge.called,
      requeued: judge.requeued,
      met: fleet.met,
    },
    ...{ mostAtOnce: judge.most("work all"), mostTogether: judge.most(TOGETHER), drainedInSeconds },
    mostAtOnceByContext: Math.max(
      ...accounts
        .filter((account) => regionOf(account) === LIMITED.region)
        .map((account) => judge.most(`work ${account}`)),
    ),
  };
}

/**
 * Nobody adds, and everything runs to its end. First all workers are killed once more: a job whose fetch was answered to
 * nobody (the connection was cut in between) stays locked in Graphile Worker for as long as its pool lives.
 */
async function calm(
  utils: PolicyUtils,
  database: TestDatabase,
  fleet: Fleet,
  judge: Judge,
  say: (what: string) => void,
) {
  say("calm");
  const started = Date.now();
  await fleet.end([...fleet.members].filter(({ role }) => role !== "worker"));
  // the meddler may have ended in between
  for (const task of TASKS) await switchOn(utils, judge, task);
  for (const { policy, gate, where } of await utils.limits())
    if (where === null) await utils.clearLimit({ policy, gate });
    else if (where.region !== LIMITED.region) await utils.clearLimit({ policy, gate, where });
  // all that start from now on bring a last definition
  fleet.deploys(nextRelease(fleet.release, 1));
  fleet.deployed();
  say("all workers are killed");
  for (const worker of [...fleet.members]) fleet.kill(worker);
  await unlockOutsiders(database.pool, fleet);
  if (!(await drained(database, utils, judge))) return null;
  const seconds = (Date.now() - started) / 1000;
  judge.late(await lateLimits(database, DEFINITIONS[fleet.release.limits]));
  await fleet.end([...fleet.members]);
  judge.sweptAtTheEnd((await utils.sweep()).repaired);
  judge.left(await leftovers(database.pool));
  await tellBurials(database.pool, fleet.lives);
  for (const one of await copies(database.pool, fleet.lives)) judge.wasCopied(one);
  for (const one of await adoptions(database.pool)) judge.adopted(one);
  return seconds;
}

/** The partitions that do not get the limits of the last definition. */
async function lateLimits({ pool }: TestDatabase, last: Limits): Promise<string[]> {
  for (const until = Date.now() + STALLED_AFTER_MS; ; await delay(200)) {
    const late = await otherLimits(pool, last);
    if (late.length === 0 || Date.now() > until) return late;
  }
}

async function switchOn(utils: PolicyUtils, judge: Judge, task: TaskName): Promise<void> {
  await utils.enable({ policy: task });
  judge.switchedOn(task);
}

/** Whether nothing is left; false once nothing moved for long. */
async function drained({ pool }: TestDatabase, utils: PolicyUtils, judge: Judge): Promise<boolean> {
  let before = "";
  let movedAt = Date.now();
  for (;;) {
    const left = await leftovers(pool);
    if (Object.values(left).every((count) => count === 0)) return true;
    const now = JSON.stringify(left) + judge.executions;
    if (now !== before) movedAt = Date.now();
    before = now;
    if (judge.problems.length > 0) return false;
    await hurry(pool, utils);
    if (Date.now() - movedAt > STALLED_AFTER_MS) {
      judge.stalled(left, await whatWaits(pool));
      return false;
    }
    await delay(200);
  }
}

/**
 * Where a process died before it parked a job that failed, the job keeps Graphile Worker's back-off, which grows with its
 * attempts to a quarter of an hour and more.
 */
async function hurry(pool: pg.Pool, utils: PolicyUtils): Promise<void> {
  const { rows } = await pool.query(
    "select id::text from dispatch_policy.staged_jobs where run_at > now() + interval '5 seconds'",
  );
  if (rows.length === 0) return;
  await utils.rescheduleJobs(
    rows.map(({ id }) => id),
    { runAt: new Date() },
  );
}
