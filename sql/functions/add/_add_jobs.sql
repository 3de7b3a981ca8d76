-- Stages jobs added from SQL where their task has a policy, and passes them on where not, with the caller's rights.
create or replace function :DISPATCH_POLICY_SCHEMA._add_jobs(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[]
) returns setof :DISPATCH_POLICY_SCHEMA.added_job language plpgsql as $$
#variable_conflict use_column
begin
  return query
  with governed as materialized (
    select g.* from :DISPATCH_POLICY_SCHEMA._add_governed(p_specs, p_mode, p_partition_keys) g
  ),
  added as (
    select g.* from governed g where g.staged is not null
    union all
    select s.* from (select json_agg(g.job) as jobs from governed g where g.staged is null) plain
    cross join lateral :DISPATCH_POLICY_SCHEMA._stage_plain(
      plain.jobs, p_mode, array(select p.payload::text from unnest(p_specs) p)) s
    where plain.jobs is not null
  )
  select a.id, a.staged, a.task_identifier, a.queue_name, a.run_at, a.max_attempts, a.job_key, a.priority, a.flags,
    a.created_at, a.policy, a.partition, a.shard, a.id is null
  from added a order by a.n;
end
$$;
