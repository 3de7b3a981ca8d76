-- How many jobs the worker pools that have a task of this policy run at once. Null: no pool that lives has said so.
--
--   assumed   the same, or 100 if it is not known: without a number of their own, such workers would get no job at all
--   alike     whether each of these pools has all tasks of the policy
--   pools     how many they are
--   tasks     how many tasks the policy has
--   behind    how far the clock of any worker pool is behind, at most, see _clocks_behind
--
-- It returns a set, of one row, so that PostgreSQL inlines it.
create or replace function _worker_slots(p_policy_id int)
returns table (slots int, assumed int, alike boolean, pools int, tasks int, behind interval) language sql stable rows 1 as $$
  select sum(w.slots) filter (where w.tasks && t.tasks)::int,
    coalesce(sum(w.slots) filter (where w.tasks && t.tasks)::int, 100),
    coalesce(bool_and(w.tasks @> t.tasks) filter (where w.tasks && t.tasks), true),
    count(*) filter (where w.tasks && t.tasks)::int,
    coalesce(max(cardinality(t.tasks)), 0), greatest(max(w.clock_behind), '0')
  from (
    select array_agg(x.task_identifier) as tasks
    from policy_tasks x where x.policy_id = p_policy_id
  ) t
  left join workers w on w.stale_at > clock_timestamp();
$$;
