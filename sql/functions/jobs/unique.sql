-- Job keys that are remembered (`uniqueFor`): an add locks its keys, and drops a job whose key's last one has completed.

-- Locks the job keys of a call (`uniqueFor`), in sorted order, until the transaction ends. So of two producers of one key the
-- second decides by what the first has done. The caller decides in later statements, which see what was committed while this
-- one waited. A key is locked before any staged job.
create or replace function _lock_unique_keys(
  p_policy policies, p_jobs json
) returns void language plpgsql as $$
begin
  -- a row that is there is locked, and not written
  insert into unique_keys as k (policy_id, job_key, look_at)
  select (p_policy).id, j.value ->> 'jobKey', clock_timestamp() + make_interval(secs => (p_policy).unique_for)
  from json_array_elements(p_jobs) j where j.value ->> 'jobKey' is not null order by 2
  on conflict (policy_id, job_key) do update set look_at = k.look_at where false;
end
$$;

-- Drops those jobs of a call whose keys are remembered (`uniqueFor`). The caller has locked the keys (_lock_unique_keys).
-- Returns a row for each dropped job, with the id of the earlier one.
--
-- A key is remembered if its last job has completed and the time is not over. A job that Graphile Worker does not have any
-- more has completed also if its release is still under way, because releases rest.
--
-- A job of the key may wait or run that came by another way. It is staged if it was adopted, and in Graphile Worker if it
-- came past the policy. It knows nothing of the new one, which replaces it as always.
create or replace function _drop_remembered(
  p_policy policies, p_partitions json, p_jobs json
) returns staging[] language plpgsql as $$
declare
  v_dropped staging[];
begin
  v_dropped := array(
    select row(n.n, true, k.staged_id, n.task_identifier, n.queue_name, n.run_at, n.max_attempts, n.job_key, n.priority,
        n.flags, n.created_at, n.policy, n.partition, n.shard, '{}'::json, false
      )::staging
    from _not_added((p_policy).name, p_partitions, p_jobs) n
    cross join lateral (   -- looks at indexes, however many keys there are
      select x.staged_id, x.ended_at from unique_keys x
      where x.policy_id = (p_policy).id and x.job_key = n.job_key limit 1) k
    cross join lateral (   -- it is told that the job has completed, or the key knows by now
      select coalesce(k.ended_at, (
        select min(x.at) from events x
        where x.staged_id = k.staged_id
          and (x.kind = 'completed' or x.kind = 'ended' and x.facts ->> 'outcome' in ('succeeded', 'gone')))) as ended_at
    ) e
    where case when e.ended_at is not null
      then e.ended_at + make_interval(secs => (p_policy).unique_for) > clock_timestamp()
      else exists (
        select from in_flight_jobs f
        where f.staged_id = k.staged_id
          and (select true from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = f.job_id limit 1) is null) end
      and (select true from staged_jobs s where s.job_key = n.job_key limit 1) is null
      and (
        select true from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.key = n.job_key and (j.locked_at is not null or j.attempts < j.max_attempts)
          -- the earlier job itself is there until Graphile Worker has recorded its end
          and (_staged_id_of(j.flags) = k.staged_id) is not true limit 1) is null);
  if cardinality(v_dropped) > 0 then
    perform _tell_dropped((p_policy).name,
      case when d.partition is not null then coalesce(
        _newest_lane((p_policy).id, d.partition), _partition_id((p_policy).name, d.partition)) end, d.partition, 'unique', count(*))
    from unnest(v_dropped) d group by d.partition;
    perform _notify((p_policy).name);
  end if;
  return v_dropped;
end
$$;

-- Notes which jobs are the last ones of their keys now (`uniqueFor`). Called after these jobs were staged, by whoever has
-- locked the keys (_lock_unique_keys). With unsafe_dedupe, another policy's job may have a key: it is not the last one here.
create or replace function _remember_staged(
  p_policy policies, p_jobs json
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
as $$
begin
  update unique_keys k set staged_id = s.id, ended_at = null
  from json_array_elements(p_jobs) j
  cross join lateral (
    select x.id, x.job_key from staged_jobs x
    where x.job_key = j.value ->> 'jobKey' and not _is_of_another(p_policy, x.task_identifier)
    limit 1) s
  where k.policy_id = (p_policy).id and k.job_key = s.job_key and k.staged_id is distinct from s.id;
end
$$;

-- Notes of keys that their last jobs have completed, by what is told of these. A producer may have a key locked in an open
-- transaction. Then the event stays, and still counts for whoever adds a job of the key. Returns the events that stay.
--
-- A job whose end nobody saw has completed if Graphile Worker does not have it any more. One that fails for good, or is
-- cancelled, stays there.
create or replace function _events_to_keys(p_events events[]) returns bigint[] language plpgsql volatile as $$
declare
  v_completed events[] := array(
    select e from unnest(p_events) e
    where e.kind = 'completed' or (e.kind = 'ended' and e.facts ->> 'outcome' in ('succeeded', 'gone')));
  v_locked bigint[];
  v_left bigint[];
begin
  if v_completed = '{}' then
    return '{}';
  end if;
  v_locked := array(
    select k.staged_id from unique_keys k
    where k.staged_id = any(array(select e.staged_id from unnest(v_completed) e))
    order by k.policy_id, k.job_key for no key update skip locked);
  update unique_keys k set ended_at = e.at
  from unnest(v_completed) e where k.staged_id = e.staged_id and k.staged_id = any(v_locked);
  v_left := array(
    select e.id from unnest(v_completed) e
    where e.staged_id <> all (v_locked) and exists (select from unique_keys k where k.staged_id = e.staged_id));
  update events e set kind = 'completed'   -- nothing else is left to be done for it
  where e.policy_id = (p_events[1]).policy_id and e.id = any(v_left) and e.kind <> 'completed';
  return v_left;
end
$$;

-- Forgets job keys whose time is over (`uniqueFor`), and those whose last job went without completing. Such a job was dropped
-- or removed, or it failed for good and was deleted. At most 1,000 keys a call. It skips those that another session has
-- locked. Returns how many it has deleted or postponed.
--
-- A job is still there if it is staged or in flight. If it was unstaged, only Graphile Worker has it.
create or replace function _forget_keys(p_now timestamptz) returns int language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
set lock_timeout = '5s' as $$
declare
  v_keys int;
  v_policy_ids int[];
  v_job_keys text[];
begin
  select coalesce(array_agg(l.policy_id), '{}'), coalesce(array_agg(l.job_key), '{}') into v_policy_ids, v_job_keys
  from (
    select k.policy_id, k.job_key from unique_keys k
    where k.look_at <= p_now order by k.look_at limit 1000 for update skip locked
  ) l;
  -- in a statement of its own, which sees the jobs of producers that had the keys until then
  with looked as materialized (
    select k.* from unnest(v_policy_ids, v_job_keys) u (policy_id, job_key)
    cross join lateral (
      select x.policy_id, x.job_key, x.staged_id, x.ended_at from unique_keys x
      where x.policy_id = u.policy_id and x.job_key = u.job_key limit 1) k
  ),
  found as materialized (
    select l.policy_id, l.job_key, case
        when p.id is null then null
        when l.ended_at + make_interval(secs => p.unique_for) > p_now
          then greatest(least(l.ended_at, p_now) + make_interval(secs => p.unique_for), p_now + interval '1 second')
        when l.ended_at is not null then null
        when (select true from staged_jobs s where s.id = l.staged_id limit 1)
          or l.staged_id in (select f.staged_id from in_flight_jobs f)
          or exists (select from events x where x.staged_id = l.staged_id)
          or (select true from :GRAPHILE_WORKER_SCHEMA.jobs j where j.key = l.job_key limit 1)
          then p_now + make_interval(secs => greatest(p.unique_for, 60)) end as look_at
    from looked l
    left join policies p on p.id = l.policy_id and p.unique_for is not null
  ),
  forgotten as (
    delete from unique_keys k using found f
    where k.policy_id = f.policy_id and k.job_key = f.job_key and f.look_at is null returning 1
  ),
  postponed as (
    update unique_keys k set look_at = f.look_at, ended_at = case when k.ended_at > p_now then p_now else k.ended_at end   -- a clock that was ahead told of its end
    from found f
    where k.policy_id = f.policy_id and k.job_key = f.job_key and f.look_at is not null returning 1
  )
  select (select count(*) from forgotten) + (select count(*) from postponed) into v_keys;
  return v_keys;
end
$$;
