-- When a job may run: now, unless it says. The value -infinity is now as well, because a difference from it would fail
-- each pass of its policy. The value infinity stays, as in Graphile Worker: such a job never runs by itself.
create or replace function _run_at(run_at timestamptz) returns timestamptz
language sql stable as $$
  select case when run_at > '-infinity' then run_at else now() end;
$$;
