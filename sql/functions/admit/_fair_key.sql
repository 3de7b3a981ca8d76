-- The virtual time of a partition's next job. Partitions are claimed and called in its order.
--
-- What was admitted decays. So a key is too high some time later, until _refresh_keys works it out again. Of old admissions
-- a trace stays for long, and would let every new partition pass first: a thousandth of a job counts as nothing.
create or replace function _fair_key(
  policy policies, decayed float8, mean_work float8, weight float8, now timestamptz
) returns float8 language sql stable as $$   -- immutable it would not be inlined
  select case when (policy).half_life is null then extract(epoch from now)::float8
    else (case when decayed < 0.001 * coalesce(_work_of(policy, mean_work), 1) then 0 else decayed end
      + coalesce(_work_of(policy, mean_work), 1)) / weight end;
$$;
