// Stages jobs: by the utils, in transactions of every isolation level, and by SQL, past the policies too. It says which
// ids it is about to stage and, once it knows, what became of them: an id of which nothing more is said may or may not be
// staged, and nobody stages it again.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { addPolicyJobs, makePolicyUtils } from "../../src/index.ts";
import { silent } from "../helpers/silent.ts";
import { chance, isOver, isTrouble, judge, orders, repeat, tell } from "./member.ts";
import { accounts, freshQueue, type Payload, policiesOf, type TaskName } from "./world.ts";

const MOST_STAGED = 150;
const PAUSE_MS = 250;
const LONGEST_OPEN_MS = 60;
/** For the run of an older job. */
const LONGEST_WAIT_MS = 8000;
const policies = policiesOf(orders.release);
interface Job {
  readonly task: TaskName;
  readonly payload: Payload;
  readonly queueName?: string;
  readonly jobKey?: string;
  readonly whenRunning?: "cancel";
}

const pool = new pg.Pool({ connectionString: orders.url, max: 2 });
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {}));
let jobsMade = 0;

const roles = [byUtils, inTransactions, bySql];
const role = roles[orders.place % roles.length]!;
const stage = await role();
tell({ ready: true });
await repeat(async () => {
  if (await isFull()) return delay(PAUSE_MS);
  // SQL does not know a job's own `whenRunning`
  if (role !== bySql && chance.chance(0.4)) await stageOfOneKey();
  else await stageSome();
  await delay(chance.between(0, PAUSE_MS));
});
process.exit(0);

/** Stages jobs, and with `then` a callback of theirs. */
type Stage = (jobs: readonly Job[], then?: Job) => Promise<"staged" | "rolledBack">;

async function stageSome(): Promise<void> {
  const jobs = Array.from({ length: chance.chance(0.3) ? 1 : 1 + chance.below(12) }, someJob);
  await stageThese(jobs, orders.groups && chance.chance(0.3) ? someUnnamed() : undefined);
}

/** Each cancels the one before, wherever that is by then. */
async function stageOfOneKey(): Promise<void> {
  const key = `k${orders.place}.${orders.life}.${jobsMade}`;
  const account = chance.pick(accounts);
  const older: string[] = [];
  for (let left = 2 + chance.below(4); left > 0; left--) {
    const id = `${orders.place}.${orders.life}.${jobsMade++}`;
    const failures = chance.chance(0.1) ? 1 : 0;
    const payload: Payload = { id, account, ms: chance.between(200, 3000), failures, key };
    tell({ newest: id, older: [...older] });
    await stageThese([{ task: "work", payload, jobKey: key, whenRunning: "cancel" }]);
    older.push(id);
    if (chance.chance(0.9)) await isLocked(key);
    await delay(chance.between(0, 2 * PAUSE_MS));
  }
}

async function stageThese(jobs: readonly Job[], then?: Job): Promise<void> {
  const own = jobs.map(({ payload }) => payload.id);
  const ids = then ? [...own, then.payload.id] : own;
  tell({ intends: ids });
  if (then) tell({ callback: then.payload.id, of: own });
  try {
    const outcome = await stage(jobs, then);
    tell(outcome === "staged" ? { staged: ids } : { rolledBack: ids });
  } catch (error) {
    // an answer that came is an answer; one that was lost leaves the ids open
    if (!isTrouble(error)) tell({ rolledBack: ids });
    if ((error as { code?: string }).code === "40001") tell({ met: "serialization failure" });
    else judge(error);
    await delay(PAUSE_MS);
  }
}

/** Some are of a queue that an application's open transaction may just be bringing in. */
function someJob(): Job {
  return { ...someUnnamed(), ...(chance.chance(0.15) && { queueName: freshQueue(chance.below(9)) }) };
}

/** Mostly short jobs; a few are long enough to be hit. */
function someUnnamed(): Job {
  const id = `${orders.place}.${orders.life}.${jobsMade++}`;
  const account = accounts[Math.floor(chance.unit() ** 1.5 * accounts.length)]!;
  const ms = chance.chance(0.25) ? chance.between(200, 1200) : chance.between(0, 60);
  // a call is charged again with each retry, which its task cannot tell from a rerun
  if (chance.chance(0.3)) return { task: "call", payload: { id, account, ms: ms / 4, failures: 0 } };
  const failures = chance.chance(0.05) ? 1 : 0;
  if (chance.chance(0.25)) return { task: "render", payload: { id, account, ms: ms * 2, failures } };
  return { task: "work", payload: { id, account, ms, failures } };
}

/** Resolves once a worker has the job of this key, or that takes too long. */
async function isLocked(key: string): Promise<void> {
  const text = "select from graphile_worker.jobs where key = $1 and locked_at is not null";
  for (const end = Date.now() + LONGEST_WAIT_MS; Date.now() < end && !isOver(); await delay(PAUSE_MS / 2))
    if ((await pool.query(text, [key])).rowCount !== 0) return;
}

async function isFull(): Promise<boolean> {
  const { rows } = await pool.query("select count(*)::int as n from dispatch_policy.staged_jobs");
  return rows[0].n > MOST_STAGED;
}

async function byUtils(): Promise<Stage> {
  const utils = await makePolicyUtils({ pgPool: pool, policies: Object.values(policies), logger: silent });
  const asSpec = ({ task, ...job }: Job) => ({ identifier: task, ...job });
  return async (jobs, then) => {
    const [added] = await utils.addJobs(jobs.map(asSpec), false, then && { then: asSpec(then) });
    if (added?.staged && added.admitted) tell({ met: "went at once" });
    return "staged";
  };
}

async function inTransactions(): Promise<Stage> {
  return async (jobs, then) => {
    const level = chance.pick(["read committed", "repeatable read", "serializable"]);
    const client = await pool.connect();
    let failed: unknown;
    try {
      await client.query(`begin isolation level ${level}`);
      // a row of the application's that many write: under a fixed snapshot the later one fails
      await client.query("select jobs from chaos_application where id = 1");
      await addPolicyJobs(client, jobs.map(asPolicyJob), then && { then: asPolicyJob(then) });
      await delay(chance.between(0, LONGEST_OPEN_MS));
      await client.query("update chaos_application set jobs = jobs + 1 where id = 1");
      const rollsBack = chance.chance(0.1);
      await client.query(rollsBack ? "rollback" : "commit");
      return rollsBack ? "rolledBack" : "staged";
    } catch (error) {
      failed = error;
      throw error;
    } finally {
      if (failed && !isTrouble(failed)) await client.query("rollback").catch(() => {});
      client.release(isTrouble(failed ?? {}));
    }
  };
}

function asPolicyJob({ task, ...job }: Job) {
  return { policy: policies[task], ...job };
}

async function bySql(): Promise<Stage> {
  const asSpec = ({ task, payload, queueName }: Job) => ({
    identifier: task,
    payload,
    queue_name: queueName,
  });
  const spec = "json_populate_record(null::graphile_worker.job_spec, ";
  return async (jobs, then) => {
    // past the policies, where no group is
    const schema = !then && chance.chance(0.2) ? "graphile_worker" : "dispatch_policy";
    const values = [JSON.stringify(jobs.map(asSpec)), ...(then ? [JSON.stringify(asSpec(then))] : [])];
    const text = `select from ${schema}.add_jobs(array(
      select ${spec}j) from json_array_elements($1) j)${then ? `, then_job => ${spec}$2)` : ""})`;
    const touch = chance.chance(0.3) ? "update chaos_application set jobs = jobs + 1 where id = 1" : null;
    const client = await pool.connect();
    let lost = true;
    try {
      if (touch) await client.query(touch);
      await client.query(text, values);
      lost = false;
      return "staged";
    } catch (error) {
      lost = isTrouble(error);
      throw error;
    } finally {
      client.release(lost);
    }
  };
}
