-- The crontab's task, as TICK_TASK in src/policy/job.ts names it. A test compares both.
create or replace function _tick_task() returns text language sql immutable as $$
  select 'dispatch_policy_tick';
$$;
