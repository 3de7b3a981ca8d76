// npm run bench -- --adoption: jobs wait in Graphile Worker when their task gets a policy. How long the verb takes to move
// them, and a worker that catches them at their start; and beside the worker, how soon jobs of another task start.
import { setTimeout as delay } from "node:timers/promises";
import { makePolicyUtils } from "../../src/index.ts";
import { silent } from "../../test/helpers/silent.ts";
import type { Noted } from "../harness/children/consumer.ts";
import { startChild } from "../harness/children.ts";
import { OTHER_TASK, openPolicy, TASK } from "../harness/jobs.ts";
import { moment } from "../harness/moment.ts";
import { openSide, type Side } from "../harness/sides.ts";

export interface AdoptionSize {
  readonly waiting: readonly number[];
  readonly partitions: number;
  /** How long the worker is watched. */
  readonly seconds: number;
}

export interface Adoption {
  readonly waiting: number;
  /** Seconds that the verb took, without a worker. */
  readonly byVerb: number;
  /** Seconds until the worker had moved or run them all. */
  readonly byWorker: number;
  /** Jobs a second that the worker started. */
  readonly pace: number;
  /** Of jobs of another task, milliseconds from adding to start. */
  readonly p50: number;
  readonly p99: number;
}

const EVERY_MS = 100;

export async function measureAdoption(waiting: number, size: AdoptionSize): Promise<Adoption> {
  const byVerb = await measureVerb(waiting, size);
  const side = await openBacklog(waiting, size);
  const worker = startChild("consumer.ts", { side: "governed", url: side.url, tuned: false });
  const note = () => worker.ask<object, Noted>({});
  await note(); // it is there
  const start = performance.now();
  const seconds = () => (performance.now() - start) / 1000;
  let byWorker = Number.NaN;
  while (Number.isNaN(byWorker) || seconds() < size.seconds) {
    await side.utils.addJob(OTHER_TASK, { addedAt: moment() });
    await delay(EVERY_MS);
    if (Number.isNaN(byWorker) && (await nativesOf(side)) === 0) byWorker = seconds();
  }
  const took = seconds();
  const { started, p50, p99 } = await note();
  await worker.stop();
  await side.close();
  return { waiting, byVerb, byWorker, pace: started / took, p50, p99 };
}

async function measureVerb(waiting: number, size: AdoptionSize): Promise<number> {
  const side = await openBacklog(waiting, size);
  const utils = await makePolicyUtils({ pgPool: side.pool, policies: [openPolicy], logger: silent });
  const start = performance.now();
  const { changed } = await utils.adopt({ task: TASK });
  const seconds = (performance.now() - start) / 1000;
  if (changed !== waiting) throw new Error(`adopted ${changed} of ${waiting} jobs`);
  await utils.release();
  await side.close();
  return seconds;
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

/** Jobs of the task in Graphile Worker that were not admitted. */
async function nativesOf({ pool }: Side): Promise<number> {
  const { rows } = await pool.query(
    "select count(*)::int as n from graphile_worker.jobs where task_identifier = $1 and flags is null",
    [TASK],
  );
  return rows[0].n;
}
