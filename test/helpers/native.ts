// What Graphile Worker does to a job, and what a worker under the preset asks when the job starts: step by step, for tests
// that decide themselves who does what when.
import type { Engine, Queryable } from "./engine.ts";
import { workerNameOf, workerTable } from "./table.ts";

export interface Added {
  readonly key?: string;
  readonly payload?: object;
  readonly flags?: readonly string[];
  readonly task?: string;
  readonly queueName?: string;
  readonly as?: Queryable;
}

/** A job as a worker has fetched it. */
export interface Fetched {
  readonly id: string;
  readonly attempts: number;
  readonly revision: number;
  readonly key: string | null;
  readonly flags: Record<string, true> | null;
  readonly last_error: string | null;
  readonly updated_at: Date;
  readonly locked_at: Date | null;
}

/**
 * Adds a job past the policy, as a trigger would, and returns its id. Null: a worker fetched the job of the key at that
 * moment, and Graphile Worker added nothing.
 */
export async function addPast(
  it: Engine,
  { key, payload = {}, flags, task = it.policy, queueName, as = it.pool }: Added = {},
) {
  const { rows } = await as.query(
    "select id from graphile_worker.add_job($1, $2, job_key => $3, flags => $4, queue_name => $5)",
    [task, JSON.stringify(payload), key, flags, queueName],
  );
  return rows[0].id as string;
}

/** Locks a job, and counts the attempt. */
export async function fetchJob(
  it: Engine,
  id: string,
  poolId = "worker",
  as: Queryable = it.pool,
): Promise<Fetched> {
  const { rows } = await as.query(
    `update graphile_worker._private_jobs set attempts = attempts + 1, locked_at = now(), locked_by = $2
     where id = $1 and is_available returning *`,
    [id, poolId],
  );
  return rows[0];
}

/** Records a failure. */
export async function failJob(it: Engine, id: string, seconds = 3): Promise<void> {
  await it.pool.query(
    `update graphile_worker._private_jobs set locked_at = null, locked_by = null, last_error = 'oops',
       run_at = greatest(now(), run_at) + make_interval(secs => $2) where id = $1`,
    [id, seconds],
  );
}

/** Records a success. */
export async function completeJob(it: Engine, id: string, as: Queryable = it.pool): Promise<void> {
  await as.query("delete from graphile_worker._private_jobs where id = $1", [id]);
}

/** Payloads of the jobs in flight, in the order they were staged. */
export async function payloadsInFlight(db: Queryable) {
  const { rows } = await db.query("select job_id from dispatch_policy.in_flight_jobs order by staged_id");
  const jobs = await workerTable(db).all({ id: rows.map(({ job_id }) => job_id) });
  const byId = new Map(jobs.map(({ id, payload }) => [id, payload]));
  return rows.map(({ job_id }) => byId.get(job_id));
}

/** The payloads of these jobs as they are written, in the order of their ids. Default: all jobs of Graphile Worker. */
export async function payloadTexts(db: Queryable, ids: readonly string[] | null = null): Promise<string[]> {
  const { rows } = await db.query(
    `select payload::text as text from ${workerNameOf()} where $1::bigint[] is null or id = any($1) order by id`,
    [ids],
  );
  return rows.map(({ text }) => text);
}

/** From now on Graphile Worker refuses payloads that contain this; "" refuses all. Returns what takes it back. */
export function refusePayloads(db: Queryable, text: string): Promise<() => Promise<void>> {
  const refusal = `if new.payload::text like '%${text}%' then raise exception 'indigestible'; end if`;
  return workerTable(db).before("insert", refusal);
}

/** What is in this row of Graphile Worker's now, and whether it is parked, or due in an hour or later. */
// biome-ignore lint/suspicious/noExplicitAny: a row of any shape
export async function rowOf(it: Engine, id: string): Promise<any> {
  const row = await workerTable(it.pool).one({ id });
  const parked = row.run_at === Number.POSITIVE_INFINITY;
  return { ...row, parked, later: !parked && row.run_at > Date.now() + 3_600_000 };
}

/** The admission of a job in flight. */
export async function admissionOf(it: Engine, id: string): Promise<string | undefined> {
  return (await it.table("in_flight_jobs").one({ job_id: id }))?.admission;
}

export interface Start {
  readonly verdict: "admitted" | "copied" | "ungoverned" | "gone" | "reassigned" | "known";
  readonly staged_id: string | null;
  readonly admission: string | null;
}

export interface StartOptions {
  /** What its payload says its partition is. Default "a". */
  readonly partition?: string;
  readonly payload?: object;
  /** Default: the one of the policy's name. */
  readonly task?: string;
  readonly poolId?: string;
  readonly unmanaged?: "enforce" | "run" | "reject";
  readonly as?: Queryable;
}

/** What the wrapper asks when a job starts that does not look as it was admitted. */
export async function startJob(
  it: Engine,
  {
    id,
    attempts,
    revision,
    key,
    locked_at = null,
  }: Pick<Fetched, "id" | "attempts" | "revision" | "key"> & Partial<Fetched>,
  {
    partition = "a",
    payload = {},
    task = it.policy,
    poolId = "worker",
    unmanaged = "enforce",
    as = it.pool,
  }: StartOptions = {},
): Promise<Start> {
  const known = await as.query(
    "select 'known' as verdict, staged_id, admission from dispatch_policy_internal._start_attempt($1, $2, $3, $4, $5)",
    [id, revision, attempts, poolId, locked_at],
  );
  if (known.rows[0]) return known.rows[0];
  const batch = it.batch([partition], { task, ...(key !== null && { jobKey: key }) });
  const { rows } = await as.query(
    "select * from dispatch_policy_internal._catch_unadmitted($1, $2, $3, $4, $5, $6, $7, $8, null)",
    [id, revision, attempts, poolId, locked_at, JSON.stringify(batch), JSON.stringify(payload), unmanaged],
  );
  return rows[0];
}

/** A worker pool with this policy's task lives. `slots`: 0 if it takes no more jobs. */
export async function poolLives(
  it: Engine,
  poolId: string,
  slots = 10,
  as: Queryable = it.pool,
): Promise<void> {
  await as.query(
    "select dispatch_policy_internal._worker_alive($1, $2, array[$3], 'host', 1, '1 hour', '0')",
    [poolId, slots, it.policy],
  );
}

/** This worker pool is dead, and the pool "judge" may say so. */
export async function poolDies(it: Engine, poolId: string): Promise<void> {
  for (const pool of [poolId, "judge"])
    await it.pool.query(
      "select dispatch_policy_internal._worker_alive($1, 1, '{p}', 'host', 1, '1 millisecond', '0')",
      [pool],
    );
  await it.pool.query(
    `update dispatch_policy_internal.workers set stale_after = '1 hour', stale_at = now() + interval '1 hour',
       heartbeat_at = now(), unbroken_since = now() - interval '2 hours' where pool_id = 'judge'`,
  );
}

/** What the wrapper asks if the pool of a job that starts runs its share already. */
export async function requeue(
  it: Engine,
  { id, attempts, revision }: Pick<Fetched, "id" | "attempts" | "revision">,
  admission: string | null,
  {
    gates = ["concurrency"],
    poolId = "worker",
    as = it.pool,
    now = null,
  }: { gates?: readonly string[]; poolId?: string; as?: Queryable; now?: Date | null } = {},
): Promise<boolean> {
  const { rows } = await as.query(
    "select dispatch_policy_internal._requeue($1, $2, $3, $4, $5, $6, '{}', $7) as sent",
    [id, revision, attempts, poolId, admission, gates, now],
  );
  return rows[0].sent;
}
