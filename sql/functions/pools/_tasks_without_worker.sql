-- Which of these tasks no live worker pool has. Their jobs are admitted, and then wait in Graphile Worker.
create or replace function :DISPATCH_POLICY_SCHEMA._tasks_without_worker(p_tasks text[])
returns table (task text) language sql stable
set search_path = pg_catalog, pg_temp as $$
  select t.task from unnest(p_tasks) t (task)
  where not exists (
    select from :DISPATCH_POLICY_SCHEMA._private_workers w
    where w.stale_at > clock_timestamp() and t.task = any (w.tasks))
  order by 1;
$$;
