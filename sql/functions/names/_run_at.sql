-- When a job may run: now, unless it says. A time before all others is now too, since no arithmetic goes by it: a difference
-- from it failed each pass of its policy. One after all others stays, as in Graphile Worker: by itself the job never runs.
create or replace function :DISPATCH_POLICY_SCHEMA._run_at(run_at timestamptz) returns timestamptz
language sql stable as $$
  select case when run_at > '-infinity' then run_at else now() end;
$$;
