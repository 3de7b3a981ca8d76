-- These jobs without those that have a row in `p_rows`. Null if none is left.
create or replace function _jobs_without(
  p_jobs json, p_rows staging[]
) returns json language sql stable as $$
  select json_agg(j.value order by j.ordinality) from json_array_elements(p_jobs) with ordinality j
  where (j.value ->> 'n')::int not in (select r.n from unnest(p_rows) r);
$$;
