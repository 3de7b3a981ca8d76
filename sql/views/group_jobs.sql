-- Jobs of open job groups that have not ended for good, and where they stand.
create or replace view :DISPATCH_POLICY_SCHEMA.group_jobs as
select m.group_id, m.staged_id as id, coalesce(f.job_id, m.job_id) as job_id,
  case when s.id is not null and s.parked_job_id is null then 'staged'   -- and then as in the view jobs
    when j.locked_at is not null then 'running' when s.id is not null then 'parked' when j.id is null then null
    when j.attempts >= j.max_attempts then 'failed' when j.run_at = 'infinity' then 'parked' else 'ready' end as state,
  coalesce(s.task_identifier, j.task_identifier) as task_identifier,
  coalesce(p.name, a.policy) as policy, coalesce(q.key, a.key) as partition,
  coalesce(s.run_at, j.run_at) as run_at, coalesce(j.attempts, 0)::int as attempts, coalesce(j.last_error, s.error) as last_error
from group_jobs m
left join staged_jobs s on s.id = m.staged_id
left join in_flight_jobs f on f.staged_id = m.staged_id
left join partitions q on q.id = coalesce(s.partition_id, f.partition_id)
left join policies p on p.id = q.policy_id
left join lateral (   -- one look at the index for each
  select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = coalesce(f.job_id, s.parked_job_id, m.job_id) limit 1
) j on true
left join lateral (   -- no router knows its partition yet
  select x.policy, x.key from arrivals x
  where q.id is null and x.partition_id = s.partition_id limit 1
) a on true;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column group_jobs.group_id is 'The group.';
comment on column group_jobs.id is
  'The id that it has in staging, else Graphile Worker''s.';
comment on column group_jobs.job_id is
  'Graphile Worker''s id; null: it is not there, or nobody knows.';
comment on column group_jobs.state is
  'As in the view jobs. Null: it has ended where nobody saw it, and the next sweep counts it.';
comment on column group_jobs.task_identifier is 'Its task.';
comment on column group_jobs.policy is 'Name of its policy; null: its key is not worked out yet, or it has no slot.';
comment on column group_jobs.partition is 'Key of its partition; null as policy.';
comment on column group_jobs.run_at is 'When it is due.';
comment on column group_jobs.attempts is 'How many times it was started.';
comment on column group_jobs.last_error is 'Of its last attempt, or why it was quarantined.';
