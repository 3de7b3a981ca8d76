-- How many jobs the worker pools that have a task of this policy run at once. Null: no pool that lives has said so.
--
--   assumed   the same, or 100 if it is not known: without a number of their own, such workers would get no job at all
--   alike     whether each of these pools has all tasks of the policy
--   pools     how many they are
--
-- It returns a set, of one row, so that PostgreSQL inlines it.
create or replace function _worker_slots(p_policy_id int)
returns table (slots int, assumed int, alike boolean, pools int) language sql stable rows 1 as $$
  select sum(w.slots)::int, coalesce(sum(w.slots)::int, 100), coalesce(bool_and(w.tasks @> t.tasks), true),
    count(*)::int
  from (
    select array_agg(x.task_identifier) as tasks
    from policy_tasks x where x.policy_id = p_policy_id
  ) t
  join workers w on w.stale_at > clock_timestamp() and w.tasks && t.tasks;
$$;
