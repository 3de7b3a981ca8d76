// A worker of the fuzz: fetches, starts and ends jobs as Graphile Worker and the preset do, and releases what ended in
// flushes that rest, come twice, and come late.
import { setTimeout as delay } from "node:timers/promises";
import type { Job } from "graphile-worker";
import { isAsAdmitted, ticketOf } from "../../src/run/fetched-job.ts";
import { type Fetched, startJob } from "../helpers/native.ts";
import type { Judge, Run } from "./judge.ts";
import { COMPLETE, FETCH, OCCUPIED, RECORD } from "./tables.ts";
import type { World } from "./world.ts";

const LONGEST_RUN_MS = 80;
/** What runs cost; each was admitted for 1. */
const COSTS = [0, 0.5, 1, 2, 50];

export function makeWorker(world: World, judge: Judge, poolId: string) {
  const { it, pool, random } = world;
  const { ledger } = judge;
  let pending: object[] = [];

  /** Fetches one job and brings it to its end. False: there was none. */
  async function work(): Promise<boolean> {
    const { rows } = await pool.query(FETCH, [poolId]);
    const job = rows[0] as (Fetched & Job) | undefined;
    if (!job) return false;
    if (!world.tasks.includes(job.task_identifier)) await workUngoverned(job);
    else await workGoverned(job);
    return true;
  }

  /** A job of a task without a policy may have replaced an admitted one under its key. */
  async function workUngoverned(job: Fetched & Job): Promise<void> {
    const { id } = partOf(job.payload);
    if (id !== undefined) ledger.starts(id); // a queue or a task that is new has a job without one
    if (id !== undefined) ledger.finishes(id, "well");
    await complete(job);
    const { rows } = await pool.query(
      "select dispatch_policy_internal._replaced_admission($1, $2) as admission",
      [job.id, job.revision],
    );
    const { admission } = rows[0];
    if (admission !== null) pending.push({ job: job.id, admission, ok: true });
  }

  async function workGoverned(job: Fetched & Job): Promise<void> {
    const { k, id } = partOf(job.payload);
    const admission = await admissionOf(job, k);
    if (admission === null) return;
    const { rows } = await pool.query(OCCUPIED, [job.id]);
    const { partition = k, keys } = rows[0] ?? {};
    const run: Run = { id: job.id, admission, partition, keys, counts: !(await world.isForced(job.id)) };
    judge.starts(run);
    ledger.starts(id!);
    await delay(random.chance(0.1) ? random.between(0, LONGEST_RUN_MS) : random.between(0, 20));
    judge.ends(run);
    const end = {
      ...{ job: job.id, admission, attempt: job.attempts, durationMs: random.between(1, 50) },
      ...(world.variant.settles && random.chance(0.6) && { settled: { cost: random.pick(COSTS) } }),
    };
    if (random.chance(0.65)) {
      ledger.finishes(id!, "well");
      await succeed(job, end);
    } else await fail(job, end);
  }

  /** Null: it is not to run, and was completed. */
  async function admissionOf(job: Fetched & Job, partition: string): Promise<string | null> {
    const ticket = ticketOf(job);
    const asks = world.variant.slotTimeout !== undefined; // each start is recorded: the time-out counts from it
    if (ticket && !asks && isAsAdmitted(job, ticket)) return ticket.admission;
    const start = await startJob(it, job, {
      ...{ partition, payload: job.payload as object, task: job.task_identifier, poolId, as: pool },
    });
    if (start.verdict === "known" || start.verdict === "admitted") return start.admission;
    if (start.verdict === "reassigned") throw new Error(`nobody has unlocked job ${job.id}`);
    await complete(job);
    if (start.admission !== null)
      pending.push({ job: job.id, admission: start.admission, attempt: job.attempts, ok: true });
    return null;
  }

  async function succeed(job: Fetched, end: object): Promise<void> {
    const first = random.chance(0.5);
    if (first) await complete(job);
    pending.push({ ...end, ok: true, ends: !first, lagMs: random.between(1, 200) });
    if (first) return;
    await delay(random.between(0, 30));
    await complete(job);
  }

  async function fail(job: Fetched & Job, end: object): Promise<void> {
    const late = random.chance(0.5);
    if (!late) await record(job);
    const retry = retryOf(job);
    if (retry === null || "giveUp" in retry) ledger.finishes(partOf(job.payload).id!, "given up");
    pending.push({ ...end, ok: false, retry });
    if (!late) return;
    await delay(random.between(0, 40));
    await record(job);
  }

  function retryOf(job: Fetched & Job): object | null {
    if (job.attempts >= job.max_attempts) return null;
    if (random.chance(0.2)) return { attempt: job.attempts, giveUp: true };
    const retry = {
      attempt: job.attempts,
      task: job.task_identifier,
      after: random.between(0, 0.3),
      maxAttempts: job.max_attempts,
    };
    return random.chance(0.3) ? { ...retry, move: world.partitionState(partOf(job.payload).k) } : retry;
  }

  const complete = ({ id }: Fetched) => pool.query(COMPLETE, [id]);

  const record = ({ id }: Fetched) => pool.query(RECORD, [id, poolId]);

  return {
    work,
    async flush(): Promise<void> {
      const jobs = pending;
      pending = [];
      if (jobs.length === 0) return;
      let left = jobs;
      try {
        const passesOn = random.chance(0.6);
        const done = new Set(await it.release(jobs as never, pool, { passesOn }));
        left = jobs.filter((job) => !done.has((job as { job: string }).job));
        if (random.chance(0.1)) await it.release(jobs as never, pool); // its answer was lost
      } finally {
        pending.push(...left);
      }
    },
    get pending(): number {
      return pending.length;
    },
  };
}

/** A batch's parts are of one partition. */
function partOf(payload: unknown): { k: string; id?: string } {
  return (Array.isArray(payload) ? payload[0] : payload) as { k: string; id?: string };
}
