-- The newest job of a key wins (`whenRunning: "cancel"`): it cancels the run of the older one, and waits for its end.

-- Cancels the older jobs of these keys that are in flight, and lets the new ones, which are staged, wait for those that run.
-- Called by whoever has staged them. So the unique key has let this wait for a pass that admits the older one, and their rows are
-- locked. Jobs of other policies are left alone.
--
-- A job that no worker has fetched fails for good, as by `cancel`, and nobody waits for it. One that has failed and waits for its
-- retry leaves staging now: it has no key there, so a pass could admit it beside this.
--
-- The danger: a run ends while this looks, and nobody wakes the job that waits for it. The cure: its in-flight row is locked. A
-- release waits until this commits, and finds the job that waits; or it came first, and no job waits.
--
--   p_jobs   as _stage takes them. "cancelsAfter": how many seconds a run that has begun may last; null: the job cancels none;
--            missing: the policy says it
--   p_past   they were added past the policy: Graphile Worker has taken the key off a run then, so they are looked for by its
--            mark in their flags, among all jobs in flight
--
-- Locks: staged rows, Graphile Worker's rows, in-flight rows ascending.
create or replace function _cancel_older(p_policy policies, p_jobs json, p_past boolean default false) returns void
language plpgsql volatile as $$
declare
  v_policy_id int := (p_policy).id;
  v_keys text[];
  v_after float8[];
  v_kept text[];
  v_parked bigint[];
  v_past boolean;
  v_ids bigint[];
  v_revisions int[];
  v_ended bigint[] := '{}';
  v_locked bigint[];
  v_gone bigint[];
  v_told int;
begin
  select array_agg(j.key) filter (where j.after is not null), array_agg(j.after) filter (where j.after is not null),
    array_agg(j.key) filter (where j.after is null)
  into v_keys, v_after, v_kept
  from (
    select x.value ->> 'jobKey' as key, case json_typeof(x.value -> 'cancelsAfter')
      when 'null' then null when 'number' then (x.value ->> 'cancelsAfter')::float8 else (p_policy).cancels_after end as after
    from json_array_elements(p_jobs) x
  ) j where j.key is not null;
  if v_kept is not null then   -- those that cancel no run wait for none, though the jobs that they replaced did
    v_gone := array(select s.waits_for from staged_jobs s where s.job_key = any(v_kept) and s.waits_for is not null);
    if v_gone <> '{}' then
      perform _end_waits(v_gone);
    end if;
  end if;
  if v_keys is null then
    return;
  end if;
  v_parked := array(
    select s.id from unnest(v_keys) k (key)
    cross join lateral (   -- one look at the index for each key
      select x.id from :GRAPHILE_WORKER_SCHEMA.jobs x where x.key = k.key and x.run_at = 'infinity' limit 1) j
    join staged_jobs s on s.parked_job_id = j.id
    where not _is_of_another(p_policy, s.task_identifier) order by s.id for update of s);
  if v_parked <> '{}' then
    insert into superseded_jobs (job_id, was_parked)
    select s.parked_job_id, true from staged_jobs s where s.id = any(v_parked) on conflict do nothing;
    perform _drop_staged(v_parked);
  end if;
  v_past := p_past or exists (
    select from unnest(v_keys) k (key)
    cross join lateral (
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.key = k.key limit 1) j
    where not _is_ours(j.flags, j.created_at, j.key));
  select coalesce(array_agg(r.job_id), '{}'), array_agg(r.revision) into v_ids, v_revisions
  from (
    select x.* from _in_flight_of_keys(v_policy_id, v_keys, v_past) x where not (x.runs or x.ended) order by x.job_id) r;
  if v_ids <> '{}' then
    v_ids := _lock_in_revision(v_ids, v_revisions);
    v_ended := array(   -- one may have been fetched before it was locked
      select r.job_id from _in_flight_of_keys(v_policy_id, v_keys, v_past) r
      where r.job_id = any(v_ids) and not (r.runs or r.ended));
    perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(
      array[j.id], _cancelled_error('job ' || s.id, _newer_reason(), j.last_error))
    from _in_flight_of_keys(v_policy_id, v_keys, v_past) r
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = r.job_id
    join staged_jobs s on s.job_key = r.job_key
    where r.job_id = any(v_ended);
  end if;
  v_ids := array(
    select r.job_id from _in_flight_of_keys(v_policy_id, v_keys, v_past) r
    union
    select s.waits_for from staged_jobs s where s.job_key = any(v_keys) and s.waits_for is not null);
  if v_ids = '{}' then
    return;
  end if;
  v_locked := array(
    select f.job_id from in_flight_jobs f where f.job_id = any(v_ids) order by f.job_id for update);
  with run as materialized (
    select r.*, s.id as staged_id, k.after
    from unnest(v_keys, v_after) k (key, after)
    join _in_flight_of_keys(v_policy_id, v_keys, v_past) r on r.job_key = k.key
    join staged_jobs s on s.job_key = k.key
    where r.job_id = any(v_locked) and (not r.ended or r.job_id = any(v_ended))
  ),
  marked as (
    update in_flight_jobs f set
      cancelled_at = coalesce(f.cancelled_at, clock_timestamp()),
      cancelled_by = case when f.cancelled_at is null then 'job ' || r.staged_id else f.cancelled_by end,
      cancel_reason = case when f.cancelled_at is null then _newer_reason() else f.cancel_reason end,
      min_run = _least_run(f, r.after),
      missing_since = case when r.ended then '-infinity' else f.missing_since end
    from run r
    where f.job_id = r.job_id
      and (f.cancelled_at is null or r.ended or f.min_run is distinct from _least_run(f, r.after))
    returning 1
  ),
  waiting as (
    update staged_jobs s set due = false, retry_at = 'infinity', waits_for = r.job_id
    from run r where s.id = r.staged_id and not r.ended and s.waits_for is distinct from r.job_id
  )
  select count(*) into v_told from marked;
  if v_told > 0 then
    perform pg_notify('dispatch_policy', json_build_object(
      'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', (p_policy).name, 'cancelled', true)::text);
  end if;
  -- a job that was staged before may have waited for a run that has ended by now, while this had its row locked
  v_gone := array(
    select s.waits_for from staged_jobs s
    where s.job_key = any(v_keys) and s.waits_for is not null and not exists (
      select from in_flight_jobs f where f.job_id = s.waits_for and f.cancelled_at is not null));
  if v_gone <> '{}' then
    perform _end_waits(v_gone);
  end if;
end
$$;

-- Why the older job was cancelled.
create or replace function _newer_reason() returns text language sql immutable as $$
  select 'a newer job of its key was added';
$$;

-- For how many seconds a cancelled run may go on after its begin, if one more job cancels it. Null: not at all.
create or replace function _least_run(run in_flight_jobs, after float8) returns float8 language sql immutable as $$
  select nullif(case when run.cancelled_at is null then after else least(coalesce(run.min_run, 0), after) end, 0);
$$;

-- The jobs of these keys that a policy has in flight, if Graphile Worker's row still has them.
--
--   p_past   also those whose key Graphile Worker has taken off
--   runs     a worker has fetched it, or it is lent to one: see _lend
--   ended    it has failed for good
create or replace function _in_flight_of_keys(p_policy_id int, p_keys text[], p_past boolean)
returns table (job_key text, job_id bigint, revision int, runs boolean, ended boolean) language sql stable as $$
  select k.key, f.job_id, j.revision, r.runs, not r.runs and j.attempts >= j.max_attempts
  from unnest(p_keys) k (key)
  cross join lateral (   -- one look at the index for each key
    select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.key = k.key limit 1) j
  join in_flight_jobs f on f.job_id = j.id
  cross join lateral (select j.locked_at is not null or coalesce(f.lent_until > now(), false) as runs) r
  where f.policy_id = p_policy_id and _is_row_of(f.revision, f.staged_id, j.revision, j.flags)
  union all
  select k.key, f.job_id, j.revision, r.runs, not r.runs and j.attempts >= j.max_attempts
  from in_flight_jobs f
  cross join lateral (
    select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
  join unnest(p_keys) k (key) on left(md5(k.key), 8) = split_part(_flag_text(j.flags), '.', 2)
  cross join lateral (select j.locked_at is not null or coalesce(f.lent_until > now(), false) as runs) r
  where p_past and f.policy_id = p_policy_id and j.key is null;
$$;

-- These runs have ended: the jobs that wait for them go by their gates now. It skips locked rows: whoever has locked one looks for
-- the run afterwards (_cancel_older), or a sweep finds it. Returns whether any waited.
create or replace function _end_waits(p_job_ids bigint[]) returns boolean language plpgsql volatile as $$
declare
  v_ids bigint[];
begin
  with woken as (
    update staged_jobs s set waits_for = null, retry_at = null, due = s.run_at <= clock_timestamp()
    where s.id = any(array(
      select x.id from staged_jobs x
      where x.waits_for = any(p_job_ids) and x.waits_for is not null order by x.id for update skip locked))
    returning s.id
  )
  select array_agg(w.id) into v_ids from woken w;
  if v_ids is null then
    return false;
  end if;
  perform _arrive_again(v_ids);
  perform _notify(k.policy) from (
    select distinct x.policy from staged_jobs s cross join lateral _policy_and_key_of(s.partition_id) x
    where s.id = any(v_ids)) k;
  return true;
end
$$;
