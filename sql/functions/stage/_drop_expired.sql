-- Drops staged jobs that have expired, outside of a pass, and records them as drops. The caller has locked them. A job's task
-- tells its policy.
create or replace function _drop_expired(p_ids bigint[]) returns void language plpgsql as $$
begin
  if p_ids = '{}' then
    return;
  end if;
  insert into drops (policy, partition_id, key, reason, jobs)
  select p.name, s.partition_id, q.key, 'expired', count(*)
  from staged_jobs s
  join policy_tasks t on t.task_identifier = s.task_identifier
  join policies p on p.id = t.policy_id
  left join partitions q on q.id = s.partition_id
  where s.id = any(p_ids) group by p.name, s.partition_id, q.key;
  perform _drop_staged(p_ids, 'dropped');
end
$$;
