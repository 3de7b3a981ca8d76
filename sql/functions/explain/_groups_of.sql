-- The open job groups of a job, by its staged id and Graphile Worker's, as json; null: it is in none.
create or replace function _groups_of(p_staged_id bigint, p_job_id bigint) returns jsonb language sql stable as $$
  select jsonb_agg(jsonb_build_object('id', g.id::text, 'total', g.total, 'jobs_left', g.jobs_left) order by g.id)
  from group_jobs m
  join groups g on g.id = m.group_id
  where m.staged_id = p_staged_id or m.job_id = p_job_id;
$$;
