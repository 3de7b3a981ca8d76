-- What a job counts for where fairness is by work: the seconds that those of its partition ran lately; a second where none
-- has ended yet. Null where each job counts for one.
create or replace function :DISPATCH_POLICY_SCHEMA._work_of(
  policy :DISPATCH_POLICY_SCHEMA._private_policies, mean_work float8
) returns float8 language sql immutable as $$
  select case when (policy).fair_by_work then greatest(coalesce(mean_work, 1), 0.001) end;
$$;
