-- Which of these tasks no live worker pool has. Their jobs are admitted, and then wait in Graphile Worker.
create or replace function _tasks_without_worker(p_tasks text[])
returns table (task text) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select t.task from unnest(p_tasks) t (task)
  where not exists (
    select from workers w
    where w.stale_at > clock_timestamp() and t.task = any (w.tasks))
  order by 1;
$$;
