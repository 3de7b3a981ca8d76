-- Repairs.

-- Puts the newest definition that a live worker pool has in force, for each policy of which another one is: so a deployment that
-- was rolled back goes by its own limits. A policy also gets its tasks back from one that no live pool has any more, as when a
-- rename is rolled back. Returns what has changed. Pools that have the definition are notified, and work the limits out again.
--
-- While any pool is silent, nothing changes: after the database was away, the pools of the newer definition are silent for a
-- moment, and limits would change to and fro. _sweep_workers buries a silent one first.
create or replace function _sweep_definitions()
returns table (policy text, version int, version_before int) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  v_policy policies;
begin
  if exists (select from workers w where w.stale_at <= clock_timestamp() and w.buried_at is null and not w.ended)
    or not exists (select from policies p where _is_behind(p)) then
    return;
  end if;
  perform _lock_turn(0, 'declare');
  for v_policy in select p.* from policies p where _is_behind(p) order by p.id loop
    perform _put_in_force(v_policy, _newest_live(v_policy), clock_timestamp());
    perform pg_notify('dispatch_policy', json_build_object(
      'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', v_policy.name, 'redefined', true)::text);
    return query select p.name, p.version, v_policy.version from policies p where p.id = v_policy.id;
  end loop;
end
$$;

-- A page of the jobs in flight of these policies: whose slots nobody will free.
--
--   p_after      the page begins behind this job
--   next_after   where the next page begins; 0: at the first job again
--   known        the policies that have a job on this page
--   lost         json array, see _lost_slots
--   ours         jobs that run in worker pools which are known
--   foreign_ids  jobs that run in others
create or replace function _look_for_lost(
  p_policies text[], p_after bigint, p_limit int, out next_after bigint, out known text[], out lost json,
  out ours bigint[], out foreign_ids bigint[]
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
as $$
declare
  v_page bigint[] := array(
    select f.job_id from in_flight_jobs f
    where f.job_id > p_after and f.policy_id in (select p.id from policies p where p.name = any(p_policies))
    order by f.job_id limit p_limit);
begin
  next_after := case when cardinality(v_page) = p_limit then v_page[p_limit] else 0 end;
  known := array(
    select distinct p.name from in_flight_jobs f join policies p on p.id = f.policy_id where f.job_id = any(v_page));
  lost := (
    select coalesce(json_agg(json_build_object(
      'job', l.job_id::text, 'admission', l.admission::text, 'attempt', l.attempt, 'ok', l.ok, 'retry', l.retry,
      'policy', p.name)), '[]')
    from _lost_slots(v_page) l join policies p on p.id = l.policy_id);
  select coalesce(array_agg(j.id) filter (where w.pool_id is not null), '{}'),
    coalesce(array_agg(j.id) filter (where w.pool_id is null), '{}')
  into ours, foreign_ids
  from :GRAPHILE_WORKER_SCHEMA.jobs j
  left join workers w on w.pool_id = j.locked_by
  where j.id = any(v_page) and j.locked_at is not null;
end
$$;

-- Frees lost slots. Returns those it could not free yet; see _release, which also describes `p_jobs`. Each has its
-- policy's name besides, and "elsewhere": it was seen to run in a worker without this package. Those are counted.
create or replace function _release_lost(p_jobs json, out left_ids bigint[]) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
as $$
begin
  left_ids := (select r.left_ids from _release(p_jobs, null) r);
  insert into events (policy_id, kind, facts)
  select p.id, 'elsewhere', jsonb_build_object('jobs', count(*))
  from json_to_recordset(p_jobs) j (job bigint, policy text, elsewhere boolean)
  join policies p on p.name = j.policy
  where j.elsewhere and j.job <> all (left_ids) group by p.id;
end
$$;

-- Jobs that have run for longer than their policy's slot_timeout: the caller frees their slots, and names admission and attempt,
-- because by then the slot may belong to a later attempt, or to the next job of the key in the same row. One that waits in a
-- worker's local queue counts as running from its fetch; when it starts, it checks whether it still has its slot.
--
-- If the database's clock steps an hour ahead, every job looks overdue, and its successor would run beside it. So the time
-- counts only while the heartbeats of the job's worker pool are unbroken, which a step breaks. A silent pool's jobs are left to
-- _sweep_workers. A pool without heartbeats does not have this package: its jobs count from their fetch.
create or replace function _sweep_overdue()
returns table (job_id bigint, admission bigint, attempt int) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select f.job_id, f.admission, coalesce(f.attempt, 0)::int
  from policies p
  join in_flight_jobs f on f.policy_id = p.id
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
  left join workers w on w.pool_id = j.locked_by
  where p.slot_timeout is not null
    and greatest(j.locked_at + coalesce(w.clock_behind, '0'), f.started_at, w.unbroken_since)
      < clock_timestamp() - make_interval(secs => p.slot_timeout)
    and (w.heartbeat_at + w.stale_after / 2 < clock_timestamp()) is not true;
$$;

-- Drops jobs that have expired in partitions that no pass looks at: paused ones, held ones, and those that wait for a
-- limiter. At most 1,000, those that expired first; returns how many.
create or replace function _sweep_expired(p_now timestamptz) returns int language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s' as $$
declare
  v_ids bigint[] := array(
    select s.id from staged_jobs s where s.expires_at <= p_now order by s.expires_at limit 1000 for update skip locked);
begin
  perform _drop_as('expired', v_ids);
  return cardinality(v_ids);
end
$$;

-- Fails a parked job for good if a newer job of its key has replaced it, and that one left staging without being admitted:
-- nothing else would ever run or end it. If another session has its row locked, it waits for another sweep. Returns how many
-- failed for good.
--
-- An application that adds a job of such a key waits until this commits. So it is 200 jobs at most, drawn by lot, and 20 waits
-- for locks of 5 ms.
create or replace function _sweep_replaced() returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5ms'
as $$
declare
  v_key text;
  v_jobs int := 0;
  v_waits int := 0;
begin
  delete from superseded_jobs r
  where r.job_id = any(array(
    select x.job_id from superseded_jobs x
    where x.was_parked and not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j
      where j.id = x.job_id and j.run_at = 'infinity' and j.attempts < j.max_attempts)
    for update skip locked));
  for v_key in
    select j.key from superseded_jobs r
    cross join lateral (
      select x.key from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = r.job_id and x.key is not null limit 1) j
    where r.was_parked and not exists (select from staged_jobs s where s.job_key = j.key)
    order by random() limit 200
  loop
    begin
      v_jobs := v_jobs + _give_up_replaced(array[v_key]);
    exception when lock_not_available then
      v_waits := v_waits + 1;
    end;
    exit when v_waits >= 20;
  end loop;
  return v_jobs;
end
$$;

-- Lowers times to now that a clock left too far ahead, if no pass would correct them. It skips locked rows: the next sweep
-- comes to them. (_sweep_workers does so for pools, and _lease for leases.)
create or replace function _sweep_clock(p_now timestamptz) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
as $$
  select _correct_partition_times(p_now), _correct_job_times(p_now);
  -- an override that began or ended by that clock does so again, and waiters would not be woken
  update overrides o
  set announced_to = null, announce_at = _turns_at(o, p_now)
  where o.id = any(array(
    select x.id from overrides x
    where not x.taken_back and ((x.from_at > p_now and x.announce_at > x.from_at)
      or (x.from_at <= p_now and x.until_at > p_now and x.announce_at > x.until_at))
    order by x.id for update skip locked));
  update unique_keys k set look_at = p_now
  where (k.policy_id, k.job_key) in (
    select x.policy_id, x.job_key from unique_keys x
    where x.look_at > p_now + (
      select make_interval(secs => max(greatest(p.unique_for, 60))) from policies p
      where p.unique_for is not null) + interval '1 minute'
    order by x.look_at limit 10000 for update skip locked);
$$;
