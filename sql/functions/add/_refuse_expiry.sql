-- Raises for a job that is to expire, but whose task has no policy: Graphile Worker would run it however late.
create or replace function _refuse_expiry(p_task text, p_expires_at timestamptz) returns void
language plpgsql as $$
begin
  raise exception 'dispatch_policy: a job of %: it expires at %, expected no such time: its task has no policy, and Graphile Worker''s own jobs do not expire',
    p_task, p_expires_at using errcode = 'DPARG';
end
$$;
