-- Subtracts jobs that left staging without being admitted: from their partitions' counts, and from a bounded backlog. Their
-- tasks tell the policy.
create or replace function _count_removed(p_tasks text[], p_partition_ids uuid[])
returns void language sql volatile as $$
  select _head_changed(p_partition_ids, -1);
  insert into pending (policy, jobs)
  select p.name, -count(*) from unnest(p_tasks) u (task)
  join policy_tasks t on t.task_identifier = u.task
  join policies p on p.id = t.policy_id and p.max_pending_in_all is not null
  group by p.name;
$$;
