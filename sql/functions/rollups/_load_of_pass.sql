-- How many jobs of each partition a pass admitted.
create or replace function _load_of_pass(
  p_policy_id int, p_candidates candidate[],
  p_admissions admission[], p_now timestamptz
) returns load_change[] language sql stable as $$
  select array(
    select row(p_policy_id, c.partition_id, p_now, 0, 0, count(*), 0, 0)::load_change
    from unnest(p_candidates) c
    where c.staged_id in (select a.staged_id from unnest(p_admissions) a where a.admitted)
    group by c.partition_id);
$$;
