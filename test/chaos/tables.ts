// What the chaos asks of the engine's tables, which no view shows: the transactions that change them log what it judges by,
// and what waits at the end is shown. No other file of it names their columns.
import type pg from "pg";
import { nameOf } from "../helpers/table.ts";
import type { TaskName } from "./world.ts";

/** Read by readLimits in limits.ts. */
export async function logLimits(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table public.chaos_limits (
      limiter text, task text, gate text, key text, max int, rate float8, capacity float8, version int,
      filled_at timestamptz, at timestamptz default clock_timestamp());
    create function chaos_log_limit() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_limits (limiter, task, gate, key, max, rate, capacity, version, filled_at)
      select new.id, p.name, new.gate, new.scope_key, (new.numbers).max, (new.numbers).rate / (new.numbers).per,
        (new.numbers).burst, new.version, new.refilled_at
      from ${nameOf("policies")} p where p.id = new.policy_id;
      return null;
    end $$;
    create trigger chaos_log_new_limit after insert on ${nameOf("limiters")}
      for each row when (new.kind <> 'ahead') execute function chaos_log_limit();
    create trigger chaos_log_limit after update on ${nameOf("limiters")}
      for each row when (old.numbers is distinct from new.numbers or old.version <> new.version)
      execute function chaos_log_limit();

    create table public.chaos_gates (
      task text, account text, gates text[], version int, at timestamptz default clock_timestamp());
    create function chaos_log_gates() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_gates (task, account, gates, version)
      select p.name, new.key, array(
        select l.gate from ${nameOf("limiters")} l where l.id = any(new.limiter_ids)), new.version
      from ${nameOf("policies")} p where p.id = new.policy_id;
      return null;
    end $$;
    create trigger chaos_log_new_gates after insert on ${nameOf("partitions")}
      for each row execute function chaos_log_gates();
    create trigger chaos_log_gates after update on ${nameOf("partitions")}
      for each row when (old.limiter_ids <> new.limiter_ids or old.version <> new.version)
      execute function chaos_log_gates();

    create table public.chaos_definitions (task text);
    create function chaos_log_definition() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_definitions values (new.name);
      return null;
    end $$;
    create trigger chaos_log_definition after update on ${nameOf("policies")}
      for each row when (old.definition_hash <> new.definition_hash) execute function chaos_log_definition();

    create table public.chaos_resolved (task text, version int, at timestamptz default clock_timestamp());
    create function chaos_log_resolved() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_resolved (task, version)
      select p.name, p.generation from ${nameOf("policies")} p
      where p.id = old.policy_id and p.definition_hash = old.hash;
      return null;
    end $$;
    create trigger chaos_log_resolved after update of resolves on ${nameOf("definitions")}
      for each row when (old.resolves and not new.resolves) execute function chaos_log_resolved();`);
}

/** Only pools that had been silent for as long as they said. A pool that is buried sooner explains nothing. */
export async function logBurials(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table public.chaos_burials (pid int, started_at timestamptz, at timestamptz default clock_timestamp());
    create function chaos_log_burial() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_burials (pid, started_at) select new.pid, new.started_at;
      return null;
    end $$;
    create trigger chaos_log_burial after update of buried_at on ${nameOf("workers")}
      for each row when (old.buried_at is null and new.buried_at is not null
        and old.heartbeat_at + old.stale_after <= new.buried_at)
      execute function chaos_log_burial();`);
}

/** Read by copies and adoptions in copies.ts. */
export async function logCopies(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table public.chaos_copies (
      job text, staged text, copy text, life int, created_at timestamptz, at timestamptz default clock_timestamp());
    create function chaos_log_copy() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_copies (job, staged, copy, life, created_at)
      select new.job_id, dispatch_policy_internal._staged_id_of(j.flags), new.staged_id, current_setting('application_name')::int,
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
    create trigger chaos_log_adoption after insert on ${nameOf("staged_jobs")}
      for each row when (new.id < 1000000000000000 and new.parked_job_id is null)
      execute function chaos_log_adoption();
    create trigger chaos_log_copy after insert or update of staged_id on ${nameOf("superseded_jobs")}
      for each row when (new.staged_id is not null) execute function chaos_log_copy();`);
}

/** What each partition allows, by gate. */
export async function limitsOfPartitions(
  pool: pg.Pool,
): Promise<{ task: TaskName; account: string; had: Record<string, number> }[]> {
  const { rows } = await pool.query(
    `select p.name as task, q.key as account, (
       select jsonb_object_agg(l.gate, coalesce((l.numbers).max, (l.numbers).rate))
       from ${nameOf("limiters")} l where l.id = any(q.limiter_ids) and l.kind <> 'ahead') as had
     from ${nameOf("partitions")} q join ${nameOf("policies")} p on p.id = q.policy_id`,
  );
  return rows;
}

/** What waits, and for what: the first of each. */
export async function rowsThatWait(pool: pg.Pool): Promise<object> {
  const rowsOf = async (text: string) => (await pool.query(`select ${text}`)).rows;
  const partitions = `(select partition_id from ${nameOf("staged_jobs")} limit 5)`;
  return {
    staged: await rowsOf(`* from ${nameOf("staged_jobs")} limit 5`),
    partitions: await rowsOf(`* from ${nameOf("partitions")} where id in ${partitions}`),
    limiters: await rowsOf(
      `l.* from ${nameOf("limiters")} l join ${nameOf("partitions")} p on l.id = any(p.limiter_ids)
       where p.id in ${partitions}`,
    ),
    freed: await rowsOf(`* from ${nameOf("freed")} limit 20`),
    arrivals: await rowsOf(`* from ${nameOf("arrivals")} limit 20`),
    keyless: await rowsOf(`* from ${nameOf("keyless_jobs")} limit 20`),
    replaced: await rowsOf(`* from ${nameOf("superseded_jobs")} limit 20`),
  };
}
