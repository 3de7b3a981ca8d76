-- Why a pass admits the jobs of this policy, and not _admit_few; null: that may. It is a budget, a breaker, an order or whatever
-- else takes more than to admit a job.
create or replace function _left_for(policy policies, now timestamptz) returns text language sql immutable as $$
  select case
    when not (policy).enabled then 'disabled'
    when (policy).paused_until > now then 'paused'
    when (policy).admission_budget is not null then 'budget'
    when (policy).breaker_failures is not null then 'breaker'
    when (policy).fair_by_work then 'fair by work'
    when (policy).when_busy <> 'wait' then 'whenBusy'
    when (policy).job_order is not null then 'order'
    when (policy).per_worker then 'per worker' end;
$$;
