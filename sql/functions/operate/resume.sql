-- Ends a pause; for a partition also a hold, and the probe after it. To resume a policy does not end the pauses of single
-- partitions. To resume all also ends the pause of policies that are still to be declared.
--
-- `dry_run` only counts, as that of pause.
--
--   select * from dispatch_policy.resume('fetch_endpoint', partition => 'ep1');
create or replace function :DISPATCH_POLICY_SCHEMA.resume(
  policy text default null, partition text default null, reason text default null, by text default null,
  "all" boolean default false, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_id uuid := _partition_id(resume.policy, resume.partition);
  v_known boolean;
  v_unrouted int;
begin
  if resume.dry_run then
    select w.matched, 0, w.partitions, w.staged, w.in_flight into matched, changed, partitions, staged, in_flight
    from _would_reach(resume.policy, resume.partition, resume."all") w;
    if resume.partition is not null then   -- a stop may wait for the first job of its partition
      matched := exists (select from partitions q where q.id = v_id)::int + (
        select count(*) from arrivals a
        where a.policy = resume.policy and a.pause is not null and a.partition_id = v_id);
    end if;
    return next;
    return;
  end if;
  if resume.partition is not null then
    perform _policy(resume.policy);
    perform from partitions q where q.id = v_id for no key update;
    v_known := found;
    -- The partition may not exist yet, and its pause may be an arrival. If a router has it locked, this waits for the
    -- router, which never waits for this: it skips arrivals that are locked.
    delete from arrivals a
    where a.policy = resume.policy and a.pause is not null and a.partition_id = v_id;
    get diagnostics v_unrouted = row_count;
    if not v_known then   -- it may exist by now, and be paused
      perform from partitions q where q.id = v_id for no key update;
    end if;
    with target as materialized (
      select q.id, q.stopped_until > '-infinity' or q.probing as stopped
      from partitions q where q.id = v_id
    ),
    resumed as (
      update partitions q set
        paused_until = '-infinity', held_until = '-infinity', breaker_until = '-infinity',
        stopped_by = null, stop_reason = null, breaker_reason = null,
        denied_until = case when q.probe_job_id is null then q.denied_until else '-infinity' end,
        denied_reason = case when q.probe_job_id is null then q.denied_reason end,
        probing = false, probe_job_id = null, failures = 0, failures_since = null
      from target t where q.id = t.id and t.stopped returning 1
    )
    select (select count(*) from target) + v_unrouted, (select count(*) from resumed) + v_unrouted into matched, changed;
    perform _record_stop(p.id, v_id, k.reason, '-infinity', clock_timestamp())
    from _policy(resume.policy) p cross join (values ('paused'), ('held'), ('breaker_open')) k (reason);
  else
    if resume."all" then
      perform _lock_all_policies('resume');
      delete from pause_of_all;
    end if;
    with target as (select t.id, t.paused_until from _targets(resume.policy, resume."all") t),
    resumed as (
      update policies p
      set paused_until = '-infinity', paused_by = null, pause_reason = null, paused_with_all = false
      from target t where p.id = t.id returning t.paused_until > '-infinity' as changed
    )
    select count(*), count(*) filter (where r.changed) into matched, changed from resumed r;
    perform _record_stop(t.id, null, 'paused', '-infinity', clock_timestamp())
    from _targets(resume.policy, resume."all") t;
  end if;
  perform _audit('resume', resume.policy, resume.partition, null, null, null, resume.reason,
    resume.by, matched, changed);
  perform _notify(p.name) from policies p
  where resume.policy is null or p.name = resume.policy;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.resume from public;
