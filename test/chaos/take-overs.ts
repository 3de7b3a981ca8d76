// The jobs that were copied or sent back instead of run, logged by the transactions that did so. A process that is killed, or cut off
// from the server, cannot tell of one that it has just staged again. And the jobs that were adopted, which keep Graphile Worker's ids: one
// of them may have been handed back, and have run before.
import type pg from "pg";
import type { Suspect, TakeOver } from "./judge.ts";

export async function logTakeOvers(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table public.chaos_take_overs (
      job text, staged text, copy text, life int, created_at timestamptz, at timestamptz default clock_timestamp());
    create function chaos_log_take_over() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_take_overs (job, staged, copy, life, created_at)
      select new.job_id, dispatch_policy._staged_id_of(j.flags), new.staged_id, current_setting('application_name')::int,
        j.created_at
      from graphile_worker.jobs j where j.id = new.job_id;
      return null;
    end $$;
    create table public.chaos_adoptions (job text, created_at timestamptz);
    create function chaos_log_adoption() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_adoptions values (new.id, new.created_at);
      return null;
    end $$;
    create trigger chaos_log_adoption after insert on dispatch_policy._private_staged_jobs
      for each row when (new.id < 1000000000000000 and new.parked_job_id is null)
      execute function chaos_log_adoption();
    create trigger chaos_log_take_over after insert or update of staged_id on dispatch_policy._private_taken_over_jobs
      for each row when (new.staged_id is not null) execute function chaos_log_take_over();`);
}

/** Of each adopted job its id and when it was added to Graphile Worker. */
export async function adoptions(pool: pg.Pool): Promise<{ job: string; createdAt: number }[]> {
  const { rows } = await pool.query(
    `select job, (extract(epoch from created_at) * 1000)::float8 as "createdAt" from public.chaos_adoptions`,
  );
  return rows;
}

/** `lives`: the processes, by the number each gives as its connections' name. */
export async function takeOvers(pool: pg.Pool, lives: readonly Suspect[]): Promise<TakeOver[]> {
  const { rows } = await pool.query<Omit<TakeOver, "by"> & { life: number }>(
    `select job, staged, copy, life, (extract(epoch from at) * 1000)::float8 as at,
       (extract(epoch from created_at) * 1000)::float8 as "createdAt" from public.chaos_take_overs`,
  );
  return rows.map(({ life, ...one }) => ({ ...one, by: lives[life] }));
}
