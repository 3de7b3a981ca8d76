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
      select x.staged_id from unique_keys x
      where x.policy_id = (p_policy).id and x.job_key = n.job_key limit 1) k
    left join lateral (
      select x.ended_at from unique_ends x where x.staged_id = k.staged_id limit 1) e on true
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
    insert into drops (policy, partition_id, key, reason, jobs)
    select (p_policy).name,
      case when d.partition is not null then _partition_id((p_policy).name, d.partition) end,
      d.partition, 'unique', count(*)
    from unnest(v_dropped) d group by d.partition;
    perform _notify((p_policy).name);
  end if;
  return v_dropped;
end
$$;
