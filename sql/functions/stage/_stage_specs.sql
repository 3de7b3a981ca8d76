-- Stages jobs whose tasks have a policy in the database. Passes the others on to Graphile Worker, with the caller's rights.
-- `n` of a row is the job's place among the specs, from 1.
create or replace function _stage_specs(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[], p_traceparent text default null,
  p_expires_at timestamptz[] default null, p_debounces json[] default null
) returns setof staging language plpgsql as $$
begin
  return query
  with governed as materialized (
    select g.* from :DISPATCH_POLICY_SCHEMA.add_governed(
      p_specs, p_mode, p_partition_keys, p_traceparent, p_expires_at, p_debounces) g
  )
  select g.* from governed g where g.staged is not null
  union all
  select s.* from (select json_agg(g.job) as jobs from governed g where g.staged is null) plain
  cross join lateral _stage_plain(
    plain.jobs, p_mode, array(select p.payload::text from unnest(p_specs) p)) s
  where plain.jobs is not null;
end
$$;
