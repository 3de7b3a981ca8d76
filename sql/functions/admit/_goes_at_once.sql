-- Whether jobs of this policy may go in the call that adds them. They may not where a pass does more than to admit them. Such
-- are policies with a budget, a bounded backlog, a history, a recorded load, or a share of each worker pool.
create or replace function _goes_at_once(
  policy policies, now timestamptz
) returns boolean language sql immutable as $$
  select (policy).enabled and (policy).paused_until <= now and (policy).admission_budget is null
    and (policy).max_pending is null and (policy).max_pending_in_all is null
    and (policy).history_kept_for is null and (policy).load_kept_for is null and not (policy).per_worker;
$$;
