-- What a job counts for if fairness is by work: the seconds that its partition's jobs ran lately; one second if none has
-- ended yet. Null if each job counts for one.
create or replace function _work_of(
  policy policies, mean_work float8
) returns float8 language sql immutable as $$
  select case when (policy).fair_by_work then greatest(coalesce(mean_work, 1), 0.001) end;
$$;
