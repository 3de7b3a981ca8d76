-- Staged jobs move to Graphile Worker, past their policy.

-- Unstages these staged jobs to Graphile Worker, past their policy and without an admission: all of them, or it raises.
-- The caller has locked them. It is the one way back: of a policy's jobs (unstage) and of all (uninstall).
--
-- Parked jobs get their time and priority again, as failed jobs of Graphile Worker that wait for their retry. The others are added
-- as they were, without a flag of this package. The newest job of a key counts, as in _add_admitted. So a staged job leaves
-- without a trace if Graphile Worker has a later one of its key.
--
-- If the next job of a key gets a row while this runs, or starts, it raises lock_not_available, and the jobs are tried again.
--
--   unstaged   all that Graphile Worker has now
--   parked        those of them that had failed, and wait there for their retry
--   replaced      jobs that left without a trace: a newer one of the key is there, or the parked job is gone
create or replace function _unstage(
  p_ids bigint[], out unstaged int, out parked int, out replaced int
) language plpgsql volatile as $$
declare
  v_keys text[] := array(
    select s.job_key from staged_jobs s
    where s.id = any(p_ids) and s.job_key is not null);
  v_is_raced boolean;
  v_added int;
  v_missing int;
  -- Of jobs in groups the ids that they had, and those that they have now. These are added one by one, because Graphile Worker
  -- returns the jobs of a call in no certain order.
  v_staged_ids bigint[];
  v_job_ids bigint[];
begin
  with there as materialized (
    select s.run_at, s.priority, j.id as job_id, j.revision,
      _is_parked(s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags) as is_parked,
      -- A job with `preserve_run_at` may have replaced a parked job, and kept its time, infinity: nothing would ever run it. It
      -- gets the time of the retry, and keeps its own priority.
      j.run_at = 'infinity' and j.locked_at is null and j.attempts < j.max_attempts as is_stopped,
      -- by a staged one, which takes the row
      exists (
        select from staged_jobs n where n.job_key = j.key) as is_replaced
    from staged_jobs s
    cross join lateral (   -- one look at the index for each, as in _add_admitted
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = s.parked_job_id limit 1) j
    where s.id = any(p_ids) and s.parked_job_id is not null
  ),
  replaced as (
    insert into superseded_jobs (job_id, was_parked)
    select t.job_id, true from there t where t.is_replaced
    on conflict do nothing
  ),
  resumed as materialized (
    select j.revision <> t.revision as is_raced
    from there t
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
      array[t.job_id], run_at => t.run_at, priority => case when t.is_parked then t.priority end) j
    where (t.is_parked or t.is_stopped) and not t.is_replaced
  )
  select count(*), coalesce(bool_or(r.is_raced), false) into parked, v_is_raced from resumed r;
  if v_is_raced then
    raise exception 'dispatch_policy: a job of this key was added meanwhile' using errcode = 'lock_not_available';
  end if;
  if parked > 0 then
    perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', parked)::text);   -- reschedule_jobs does not
  end if;
  with older as materialized (
    select s.*, k.id as seen_id, k.next_revision, case
        when exists (select from group_jobs m where m.staged_id = s.id) or exists (select from events e where e.kind = 'moved')
        then s.id end as grouped_id
    from staged_jobs s
    left join lateral _job_of_key(s.job_key, s.known_job_id, s.known_revision) k on true
    where s.id = any(p_ids) and s.parked_job_id is null and k.is_newer is not true
  ),
  specs as materialized (
    select o.preserve_run_at, o.grouped_id, count(*) as jobs, array_agg(row(
        o.task_identifier, o.payload, o.queue_name, o.run_at, o.max_attempts, o.job_key, o.priority,
        array(select f from unnest(o.flags) f where not _is_own_flag(f))
      ):::GRAPHILE_WORKER_SCHEMA.job_spec order by o.job_key nulls first, o.id) as specs
    from (
      select x.*, _portion(sum(octet_length(x.payload::text)) over (
        order by x.job_key nulls first, x.id rows between unbounded preceding and 1 preceding)) as portion
      from older x) o
    group by o.preserve_run_at, o.grouped_id, o.portion order by o.preserve_run_at, o.grouped_id, o.portion
  ),
  added as materialized (
    select j.id, s.grouped_id, j.key, j.revision, s.preserve_run_at and j.key is not null and j.run_at = 'infinity' as keeps_infinity
    from specs s cross join lateral :GRAPHILE_WORKER_SCHEMA.add_jobs(s.specs, s.preserve_run_at) j
  ),
  -- a job that keeps the time of the one it replaces may have replaced a parked one: nothing would ever run it
  resumed as materialized (
    select j.id from added a join older o on o.job_key = a.key
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[a.id], run_at => o.run_at) j
    where a.keeps_infinity
  ),
  -- the row of a parked job that was replaced has its successor now
  succeeded as (
    delete from superseded_jobs r where r.was_parked and r.job_id in (select a.id from added a)
  )
  select (select count(*) from added), coalesce((select sum(s.jobs) from specs s), 0) - (select count(*) from added),
    -- PostgreSQL skips a SELECT that nobody reads, and this one has an effect
    (select count(*) from resumed) >= 0 and exists (
      select from added a join older o on o.job_key = a.key
      where _is_raced(o.seen_id, o.next_revision, a.id, a.revision)),
    array(select a.grouped_id from added a where a.grouped_id is not null order by a.id),
    array(select a.id from added a where a.grouped_id is not null order by a.id)
  into v_added, v_missing, v_is_raced, v_staged_ids, v_job_ids;
  if v_missing > 0 or v_is_raced then
    raise exception 'dispatch_policy: a job of this key was added or started meanwhile'
      using errcode = 'lock_not_available';
  end if;
  unstaged := parked + v_added;
  replaced := cardinality(p_ids) - unstaged;
  if exists (select from policies p where _is_watched(p)) then
    perform _tell_unstaged(p_ids, v_staged_ids, v_job_ids);
  end if;
  perform _drop_staged(p_ids, null);
  perform _give_up_replaced(v_keys);
end
$$;
