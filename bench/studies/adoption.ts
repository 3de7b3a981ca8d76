// npm run bench -- --adoption: jobs wait in Graphile Worker when their task gets a policy. How long it takes until all have
// moved: by the verb, by a command that is killed on its way, and by a worker that catches them at their start. Beside all, how
// soon jobs of another task start.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { makePolicyUtils } from "../../src/index.ts";
import { silent } from "../../test/helpers/silent.ts";
import type { Ask, Noted } from "../harness/children/consumer.ts";
import { startChild } from "../harness/children.ts";
import { OTHER_TASK, openPolicy, TASK } from "../harness/jobs.ts";
import { moment } from "../harness/moment.ts";
import { openSide, type Side } from "../harness/sides.ts";

export interface AdoptionSize {
  readonly waiting: readonly number[];
  readonly partitions: number;
  /** How long the worker is watched at least. */
  readonly seconds: number;
  /** How often the command is killed. */
  readonly kills: number;
}

/** Who moves the jobs. The worker beside the verb and the command runs jobs of the other task alone. */
export const ADOPTERS = ["verb", "killed command", "worker"] as const;
export type Adopter = (typeof ADOPTERS)[number];

export interface Adoption {
  readonly by: Adopter;
  readonly waiting: number;
  /** Seconds until none of the jobs waited in Graphile Worker. */
  readonly seconds: number;
  /** Milliseconds until the worker had started a job for the first time. */
  readonly upAfter: number;
  /** How many jobs of the other task were added meanwhile, and all of them started. */
  readonly others: number;
  /** Of these, milliseconds from adding to start; for those that were added earlier, from the worker's first start. */
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
}

const EVERY_MS = 100;
const MAIN = new URL("../../src/cli/main.ts", import.meta.url).pathname;

export async function measureAdoption(waiting: number, by: Adopter, size: AdoptionSize): Promise<Adoption> {
  const side = await openBacklog(waiting, size);
  const began = moment();
  const worker = startChild("consumer.ts", {
    ...{ side: "governed", url: side.url, tuned: false, othersOnly: by !== "worker" },
  });
  const note = (ask: Ask = {}) => worker.ask<Ask, Noted>(ask);
  await note(); // it runs, and may not have fetched a job yet
  if (by !== "worker") await untilUp(side, note);
  const { seconds, added } = await adoptBesideOthers(side, by, size);
  if (by !== "worker") await isEachThereOnce(side, waiting);
  let noted = await note({ keep: true });
  for (; noted.timed < added; noted = await note({ keep: true })) await delay(EVERY_MS);
  await worker.stop();
  await side.close();
  const { upAt, p50, p99, most } = noted;
  return { by, waiting, seconds, upAfter: upAt - began, others: added, p50, p99, most };
}

/** Adds jobs of the other task until the worker has started one, and leaves them out. */
async function untilUp(side: Side, note: () => Promise<Noted>): Promise<void> {
  await addOther(side);
  while ((await note()).timed === 0) await delay(EVERY_MS);
}

/** Adds a job of the other task now and then, until all jobs have moved and for as long as the size says. */
async function adoptBesideOthers(side: Side, by: Adopter, size: AdoptionSize) {
  const start = performance.now();
  const elapsed = () => (performance.now() - start) / 1000;
  const adopted = {
    verb: () => adoptByVerb(side),
    "killed command": () => adoptByKilledCommand(side, size),
    worker: () => untilNoneWaits(side),
  }[by]();
  let over = false;
  const tookSeconds = adopted.then(elapsed).finally(() => {
    over = true;
  });
  tookSeconds.catch(() => {}); // it is awaited below
  let added = 0;
  for (; !over || elapsed() < size.seconds; added++) {
    await addOther(side);
    await delay(EVERY_MS);
  }
  return { seconds: await tookSeconds, added };
}

const addOther = ({ utils }: Side) => utils.addJob(OTHER_TASK, { addedAt: moment() });

async function adoptByVerb({ pool }: Side): Promise<void> {
  const utils = await makePolicyUtils({ pgPool: pool, policies: [openPolicy], logger: silent });
  await utils.adopt({ task: TASK });
  await utils.release();
}

/** The command is killed as soon as it has made a step, a few times. Then the verb moves the rest. */
async function adoptByKilledCommand(side: Side, { kills }: AdoptionSize): Promise<void> {
  for (let killed = 0; killed < kills; killed++) {
    const before = await stepsOf(side);
    const args = [MAIN, "adopt", "--task", TASK, "--connection", side.url];
    const child = spawn(process.execPath, args, { stdio: "ignore" });
    const gone = once(child, "exit");
    while (child.exitCode === null && (await stepsOf(side)) === before) await delay(1);
    child.kill("SIGKILL");
    await gone;
  }
  await adoptByVerb(side);
}

async function stepsOf({ pool }: Side): Promise<number> {
  const text = "select count(*)::int as n from dispatch_policy.audit where verb = 'adopt'";
  return (await pool.query(text)).rows[0].n;
}

/** Fails if a job is lost, or in two places. The worker's tick loop has admitted some: those are Graphile Worker's again. */
async function isEachThereOnce({ pool }: Side, jobs: number): Promise<void> {
  const { rows } = await pool.query(
    `select count(*)::int as staged, count(distinct payload ->> 'id')::int as ids,
       (select count(*)::int from graphile_worker.jobs where task_identifier = $1) as admitted
     from dispatch_policy.staged_jobs where task_identifier = $1`,
    [TASK],
  );
  const [{ staged, ids, admitted }] = rows;
  if (ids !== staged || staged + admitted !== jobs)
    throw new Error(`of ${jobs} jobs ${ids} are staged, in ${staged} rows, and ${admitted} admitted`);
}

async function untilNoneWaits(side: Side): Promise<void> {
  while (await isAnyWaiting(side)) await delay(EVERY_MS);
}

/** Whether Graphile Worker has jobs of the task that were not admitted. */
async function isAnyWaiting({ pool }: Side): Promise<boolean> {
  const { rows } = await pool.query(
    `select exists (select from graphile_worker.jobs where task_identifier = $1 and flags is null) as "any"`,
    [TASK],
  );
  return rows[0].any;
}

async function openBacklog(waiting: number, { partitions }: AdoptionSize): Promise<Side> {
  const side = await openSide("governed", { policy: openPolicy, autovacuum: true });
  await side.pool.query(
    `select count(*) from graphile_worker.add_jobs(array(
       select row($1, json_build_object('tenant', 'tenant-' || n % $3, 'id', n),
         null, null, null, null, null, null)::graphile_worker.job_spec
       from generate_series(1, $2::int) n))`,
    [TASK, waiting, partitions],
  );
  await side.pool.query("vacuum analyze");
  await side.pool.query("checkpoint");
  return side;
}
