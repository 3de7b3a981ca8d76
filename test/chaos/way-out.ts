// The end of a run with an even seed, or with --out: every worker is killed, the package is uninstalled by a command that is killed as well, and
// plain Graphile Worker runs what is left.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { TestDatabase } from "../helpers/database.ts";
import type { Random } from "../helpers/random.ts";
import { until } from "../helpers/until.ts";
import { tellBurials } from "./burials.ts";
import { adoptions, copies } from "./copies.ts";
import type { Fleet } from "./fleet.ts";
import type { Judge } from "./judge.ts";
import { STALE_AFTER_MS, TASKS } from "./world.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const KILLS = 3;
const OUTSIDERS = 3;
const STALLED_AFTER_MS = 60_000;

interface Stage {
  readonly database: TestDatabase;
  readonly fleet: Fleet;
  readonly judge: Judge;
  readonly random: Random;
  readonly say: (what: string) => void;
}

/** Returns how many seconds it took, or null if jobs were left. */
export async function wayOut(stage: Stage): Promise<number | null> {
  const { database, fleet, judge, say } = stage;
  const { pool } = database;
  const started = Date.now();
  say("way out");
  await fleet.end([...fleet.members].filter(({ role }) => role !== "worker"));
  await fleet.killAll();
  await tellBurials(pool, fleet.lives);
  for (const one of await copies(pool, fleet.lives)) judge.wasCopied(one);
  for (const one of await adoptions(pool)) judge.adopted(one);
  await until("every pool counts as dead", async () => (await count(stage, LIVING)) === 0, {
    withinMs: STALE_AFTER_MS * 4,
  });
  await uninstall(stage);
  const stopped = await count(stage, STOPPED);
  if (stopped > 0) judge.fail("lost", `${stopped} jobs never start after the uninstall`);
  await unlockOutsiders(pool, fleet);
  const locked = await count(stage, LOCKED);
  if (locked > 0) judge.fail("lost", `${locked} jobs are locked by dead workers after the uninstall`);
  for (let place = 0; place < OUTSIDERS; place++) fleet.add("outsider", place);
  if (!(await drained(stage))) return null;
  await fleet.end([...fleet.members]);
  return (Date.now() - started) / 1000;
}

/** An outsider that was cut off leaves its jobs locked. An operator unlocks them. */
export async function unlockOutsiders(pool: TestDatabase["pool"], fleet: Fleet): Promise<void> {
  await pool.query("select graphile_worker.force_unlock_workers($1)", [fleet.outsiders]);
}

const LIVING = "dispatch_policy.workers where alive";
const LEFT = "graphile_worker.jobs where task_identifier = any($1) and attempts < max_attempts"; // cancelled ones are kept
const STOPPED = `${LEFT} and run_at = 'infinity'`;
const LOCKED = `${LEFT} and locked_by is not null`;

async function count({ database }: Stage, from: string): Promise<number> {
  const { rows } = await database.pool.query(
    `select count(*)::int as n from ${from}`,
    from === LIVING ? [] : [TASKS],
  );
  return rows[0].n;
}

/** By the command, which is killed a few times on its way. */
async function uninstall({ database, judge, random, say }: Stage): Promise<void> {
  for (let calls = 0; ; calls++) {
    const child = spawn(process.execPath, [MAIN, "uninstall", "--yes"], {
      env: { ...process.env, DATABASE_URL: database.url },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    child.stdout.on("data", (text) => (said += text));
    child.stderr.on("data", (text) => (said += text));
    const exited = once(child, "close"); // at its exit not all that it said is read
    if (calls < KILLS) {
      await delay(random.between(300, 900));
      child.kill("SIGKILL");
      await exited;
      continue;
    }
    const [code] = await exited;
    say(said.trim());
    if (code !== 0) judge.fail("failed", `uninstall: ${said}`);
    return;
  }
}

/** Whether nothing is left; false once nothing moved for long. */
async function drained(stage: Stage): Promise<boolean> {
  const { database, judge } = stage;
  let before = -1;
  let movedAt = Date.now();
  for (;;) {
    const left = await count(stage, LEFT);
    if (left === 0) return true;
    if (left !== before) movedAt = Date.now();
    before = left;
    if (Date.now() - movedAt > STALLED_AFTER_MS) {
      const { rows } = await database.pool.query(`select * from ${LEFT} limit 5`, [TASKS]);
      judge.stalled({ "jobs in Graphile Worker": left }, rows);
      return false;
    }
    // failed ones wait for their retry
    await database.pool.query(
      `select count(*) from graphile_worker.reschedule_jobs(
         array(select id from ${LEFT} and locked_at is null and run_at > now()), run_at => now())`,
      [TASKS],
    );
    await delay(200);
  }
}
