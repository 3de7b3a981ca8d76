-- A backlog's bound, and how many jobs count against it.

-- Changes the count of a policy's staged jobs, if the policy has a bound on all of them. Counting the jobs each time would
-- take as long as there are jobs.
create or replace function _count_pending(p_policy text, p_jobs int)
returns void language sql volatile as $$
  insert into pending (policy, jobs)
  select p.name, p_jobs from policies p
  where p.name = p_policy and p.max_pending_in_all is not null and p_jobs <> 0;
$$;

-- Replaces the many entries of a policy's pending count by one. The caller has the router's turn.
create or replace function _add_up_pending(p_policy text) returns void language sql volatile as $$
  with entry as (
    delete from pending d
    where d.policy = p_policy and (
      select count(*) from (
        select from pending x where x.policy = p_policy limit 10) x) = 10
    returning d.jobs
  )
  insert into pending (policy, jobs)
  select p_policy, sum(e.jobs) from entry e having count(*) > 0;
$$;

-- Makes the producers of a strict backlog wait for each other until they commit. One row stands for the bound over all of
-- the policy, and one of 1,024 rows for each partition. Two partitions may share a row by chance. Then their producers
-- wait for each other as well.
create or replace function _lock_pending(
  p_policy policies, p_partitions json
) returns void language plpgsql as $$
begin
  perform from turns u
  where u.policy_id = (p_policy).id and u.step = 'pending' and u.place = any(array(
    select 0 where (p_policy).max_pending_in_all is not null
    union
    select 1 + (hashtext(k.key) & 1023) from json_to_recordset(p_partitions) k (key text)
    where (p_policy).max_pending is not null))
  order by u.place for update;
end
$$;

-- Counts the backlogs of bounded policies again, in one snapshot, and finds the jobs that may be dropped. Returns for how
-- many policies the count was wrong.
create or replace function _sweep_pending() returns int language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with repaired as (
    insert into pending (policy, jobs)
    select p.name, t.jobs - c.jobs from policies p
    cross join lateral (
      select count(*) as jobs from staged_jobs s
      where s.task_identifier in (
        select x.task_identifier from policy_tasks x where x.policy_id = p.id)
    ) t
    cross join lateral (
      select coalesce(sum(d.jobs), 0) as jobs from pending d where d.policy = p.name
    ) c
    where p.max_pending_in_all is not null and t.jobs <> c.jobs
    returning 1
  ),
  -- jobs that were staged before their policy dropped the oldest
  made_droppable as (
    update staged_jobs s set droppable = true
    where s.id in (
      select x.id from policies p
      join policy_tasks t on t.policy_id = p.id
      join staged_jobs x on x.task_identifier = t.task_identifier
      where _is_droppable(p.when_full, p.max_pending_in_all)
        and not x.droppable and x.parked_job_id is null
      for update of x skip locked)
  )
  select count(*)::int from repaired;
$$;

-- Refuses jobs, because the backlog of their policy is full. `p_full` is what _make_room found: the error names the
-- first partition that is full by itself, else the policy.
create or replace function _raise_full(
  p_policy policies, p_full jsonb, p_pending_in_all int
) returns void language plpgsql as $$
begin
  raise exception using errcode = 'DPFUL', message = format(
    'dispatch_policy: the backlog of policy %L is full: %s', (p_policy).name, coalesce(
      (select format('%s of these jobs do not fit into partition %L: %s of at most %s are pending',
          t.over, t.key, t.pending, (p_policy).max_pending)
        from jsonb_to_recordset(p_full) t (key text, over int, pending int) where t.over > 0 order by t.key limit 1),
      format('%s of these jobs do not fit: %s of at most %s are pending',
        (select sum(t.dropped) from jsonb_to_recordset(p_full) t (dropped int)), p_pending_in_all, (p_policy).max_pending_in_all)));
end
$$;

-- Drops that many jobs of a partition, or of a policy: those staged first. It leaves parked jobs, jobs that another session
-- has locked, and jobs with `p_keys`, which are about to be replaced. Returns how many it dropped.
--
-- It drops no other job in the place of a locked one, because that could lose a job for which there is room. If a tick has
-- it locked to admit it, the tick makes the room. If another producer drops it, both overshoot together, and the next
-- call drops one more.
--
-- Adoption moves more jobs into staging than the bound allows. A new job that made up for all of them would drop a whole
-- backlog at once, although no job of it was refused. So of adopted jobs, whose ids tell, it drops at most `p_adopted`.
create or replace function _drop_oldest(
  p_policy text, p_partition_ids uuid[], p_jobs int, p_keys text[], p_adopted int
) returns int language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
as $$
declare
  v_ids bigint[];
begin
  if p_jobs <= 0 then
    return 0;
  elsif p_partition_ids is not null then
    v_ids := array(select s.id from (
      select d.id from staged_jobs d
      where d.partition_id = any(p_partition_ids) and d.due and d.parked_job_id is null
        and (d.job_key = any(p_keys)) is not true
      union all
      select l.id from staged_jobs l
      where l.partition_id = any(p_partition_ids) and not l.due and l.parked_job_id is null
        and (l.job_key = any(p_keys)) is not true
    ) s order by s.id limit p_jobs);
  else
    v_ids := array(
      select s.id
      from policies p
      join policy_tasks t on t.policy_id = p.id
      cross join lateral (
        select x.id from staged_jobs x
        where x.task_identifier = t.task_identifier and x.droppable and x.parked_job_id is null
          and (x.job_key = any(p_keys)) is not true
        order by x.id limit p_jobs
      ) s
      where p.name = p_policy order by s.id limit p_jobs);
  end if;
  v_ids := array(
    select u.id from unnest(v_ids) with ordinality u (id, n) where u.id >= 1000000000000000 or u.n <= p_adopted);
  v_ids := array(
    select x.id from staged_jobs x where x.id = any(v_ids) for update skip locked);
  perform _drop_as('max_pending', v_ids);
  return cardinality(v_ids);
end
$$;

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
