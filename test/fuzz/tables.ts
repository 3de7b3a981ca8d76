// The statements of the fuzz about tables that no view shows whole: it does what Graphile Worker does, chooses what operators
// touch, logs what is charged, and looks whether all of it agrees. No other file of it names columns of theirs.
import { WRONGLY_STAGED } from "../helpers/engine.ts";
import { nameOf, relationOf, workerNameOf } from "../helpers/table.ts";

const JOBS = workerNameOf();
const QUEUES = workerNameOf("job_queues");
const STAGED = nameOf("staged_jobs");
const IN_FLIGHT = nameOf("in_flight_jobs");
const PARTITIONS = nameOf("partitions");
const LIMITERS = nameOf("limiters");

/** A named queue runs one job at a time: who fetches one locks its queue. `$1`: the pool. */
export const FETCH = `with j as (
    select id, job_queue_id from ${JOBS} where is_available and run_at <= now()
      and (job_queue_id is null or job_queue_id in (
        select id from ${QUEUES} where is_available for update skip locked))
    order by priority, run_at limit 1 for update skip locked),
  q as (
    update ${QUEUES} q set locked_by = $1, locked_at = now()
    from j where q.id = j.job_queue_id)
  update ${JOBS} x set attempts = attempts + 1, locked_at = now(), locked_by = $1
  from j where x.id = j.id
  returning x.*, (select identifier from ${workerNameOf("tasks")} t where t.id = task_id) as task_identifier`;

const UNLOCK_QUEUE = `update ${QUEUES} q set locked_by = null, locked_at = null
  from j where q.id = j.job_queue_id`;

/** `$1`: the job. */
export const COMPLETE = `with j as (delete from ${JOBS} where id = $1 returning job_queue_id) ${UNLOCK_QUEUE}`;

/** Records a failure. `$1`: the job, `$2`: the pool. */
export const RECORD = `with j as (
    update ${JOBS} set locked_at = null, locked_by = null, last_error = 'oops',
      run_at = greatest(now(), run_at) + interval '3 seconds' where id = $1 and locked_by = $2
    returning job_queue_id)
  ${UNLOCK_QUEUE}`;

/** Makes an order of a column. */
type Order = (column: string) => string;

/** A key whose job has completed. */
export const rememberedKey = (order: Order) =>
  `select k.job_key from ${nameOf("unique_keys")} k where k.ended_at is not null order by ${order("k.job_key")} limit 1`;

/** A queue or a task that a staged job waits for, and Graphile Worker does not know yet. */
export function awaited(what: "queue_name" | "task_identifier", order: Order): string {
  const known =
    what === "queue_name"
      ? `${QUEUES} q where q.queue_name`
      : `${workerNameOf("tasks")} t where t.identifier`;
  return `select s.${what} as name from ${STAGED} s
    where s.${what} is not null and not exists (select from ${known} = s.${what})
    order by ${order("s.id")} limit 1`;
}

/** Staged jobs and Graphile Worker's. `$1`: how many, `$2`: without witnesses. */
export const someJobs = (order: Order) =>
  `select id, payload ->> 'id' as payload_id, key from (
     select id, payload, job_key as key from ${STAGED} where parked_job_id is null
     union all select s.id, j.payload, j.key from ${STAGED} s
       join ${JOBS} j on j.id = s.parked_job_id
     union all select f.staged_id, j.payload, j.key from ${IN_FLIGHT} f
       join ${JOBS} j on j.id = f.job_id
     union all select id, payload, key from ${JOBS}) x
   where payload ->> 'witness' is null or not $2 order by ${order("id")} limit $1`;

/** Two of Graphile Worker's. `$1`: without witnesses. */
export const nativeJobs = (order: Order) =>
  `select id from ${JOBS} where payload ->> 'witness' is null or not $1 order by ${order("id")} limit 2`;

/** Lets busy_delay be less than a second. */
export const FREE_DELAY = `alter table ${nameOf("policies")}
  drop constraint ${relationOf("policies")}_busy_delay_check`;

/** Of a row p of a partition: the keys that its jobs name, by gate. */
const KEYS = `(select jsonb_object_agg(l ->> 'gate', l ->> 'key') from jsonb_array_elements(p.limits) l where l ? 'key')`;

/** The partition whose slots a job occupies, and the keys. An operator may have moved it to another than its payload says. */
export const OCCUPIED = `select p.key as partition, ${KEYS} as keys
  from ${IN_FLIGHT} f join ${PARTITIONS} p on p.id = f.partition_id where f.job_id = $1`;

/**
 * A row for each job that is put in flight, or moved to another partition there: it is charged. If it is settled, its last row
 * says what it cost then.
 */
export const LOG_CHARGES = `
  create table public.fuzz_charges (
    n bigint generated always as identity, job_id bigint, partition text, keys jsonb, at float8, forced boolean,
    cost float8, returned_at float8);
  create index on public.fuzz_charges (job_id, n);
  create function public.fuzz_log_charge() returns trigger language plpgsql as $$
  begin
    insert into public.fuzz_charges (job_id, partition, keys, at, forced)
    select new.job_id, p.key, ${KEYS}, extract(epoch from new.admitted_at) * 1000,
      coalesce(current_setting('fuzz.forced', true), '') = 'on'
    from ${PARTITIONS} p where p.id = new.partition_id;
    return null;
  end $$;
  create trigger fuzz_log_charge after insert on ${IN_FLIGHT}
    for each row execute function public.fuzz_log_charge();
  create trigger fuzz_log_move after update of partition_id on ${IN_FLIGHT}
    for each row when (new.partition_id <> old.partition_id) execute function public.fuzz_log_charge();
  create function public.fuzz_log_settlement() returns trigger language plpgsql as $$
  begin
    update public.fuzz_charges c set cost = (new.paid ->> 'cost')::float8,
      returned_at = extract(epoch from clock_timestamp()) * 1000
    where c.n = (select max(x.n) from public.fuzz_charges x where x.job_id = new.job_id);
    return null;
  end $$;
  create trigger fuzz_log_settlement after update of paid on ${IN_FLIGHT}
    for each row when (new.admission = old.admission and new.paid is distinct from old.paid)
    execute function public.fuzz_log_settlement();`;

/** In one snapshot: counters, and jobs that a worker would believe to be admitted though they hold no slot. */
export const LOOK = `select
  (select json_agg(json_build_array(l.gate, l.scope_key, l.in_flight, n.n)) from ${LIMITERS} l
    cross join lateral (
      select count(*) as n from ${IN_FLIGHT} f where f.limiter_ids @> array[l.id]) n
    where l.kind <> 'throttle' and l.in_flight <> n.n) as "counters that are wrong",
  (select json_agg(w) from (${WRONGLY_STAGED}) w) as "counts of staged jobs that are wrong",
  (select json_agg(j) from ${JOBS} j
    where j.is_available and j.attempts = 0 and j.last_error is null
      and j.flags::text ~ ('@' || (extract(epoch from j.updated_at) * 1000000)::bigint || '[#"]')
      and not exists (
        select from ${IN_FLIGHT} f
        where f.job_id = j.id and f.admission = (extract(epoch from j.updated_at) * 1000000)::bigint)
  ) as "jobs that would run without a slot",
  (select json_agg(j) from ${JOBS} j
    where j.run_at = 'infinity' and j.locked_at is null and j.attempts < j.max_attempts
      and not exists (
        select from ${STAGED} s where s.parked_job_id = j.id or s.job_key = j.key)
      and not exists (select from ${IN_FLIGHT} f where f.job_id = j.id)
      -- a sweep ends these, and at the end of the fuzz it must have
      and not exists (select from ${nameOf("superseded_jobs")} r where r.job_id = j.id and r.was_parked)
  ) as "jobs that are parked for ever",
  (select json_agg(g) from ${nameOf("groups")} g where g.jobs_left
    <> (select count(*) from ${nameOf("group_jobs")} m where m.group_id = g.id)
  ) as "groups whose jobs are not all counted"`;

/** How many jobs and groups are left. */
export const LEFT = `select ((select count(*) from ${STAGED})
  + (select count(*) from ${IN_FLIGHT})
  + (select count(*) from ${nameOf("groups")})
  + (select count(*) from ${JOBS} where attempts < max_attempts and run_at < 'infinity'))::int`;

export const DELAYED = `select coalesce(sum(delayed), 0)::int from ${nameOf("activity")}`;

/** What is left, for who looks for the reason. */
export const SEEN = {
  staged: `select * from ${STAGED} limit 5`,
  groups: `select * from ${nameOf("groups")} limit 5`,
  groupJobs: `select * from ${nameOf("group_jobs")} limit 5`,
  inFlight: `select * from ${IN_FLIGHT} limit 5`,
  jobs: "select * from graphile_worker.jobs where attempts < max_attempts limit 5",
  partitions: `select key, due_at, denied_until, blocked_on, denied_reason, held_until, probing, probe_job_id
    from ${PARTITIONS} where due_at < 'infinity' limit 5`,
  limiters: `select l.*, (select count(*) from ${nameOf("freed")} f where f.limiter_id = l.id) as notes
    from ${LIMITERS} l where id in (select blocked_on from ${PARTITIONS})`,
};
