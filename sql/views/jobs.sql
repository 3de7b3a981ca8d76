-- Graphile Worker's jobs, in the columns of the view jobs. Pages read them in the order of their ids, by an index: in the view
-- jobs PostgreSQL would sort all rows first.
create or replace view worker_jobs as
select j.id,
  case when j.locked_at is not null then 'running' when s.id is not null then 'parked'
    when j.attempts >= j.max_attempts then 'failed' when j.run_at = 'infinity' then 'parked' else 'ready' end as state,
  j.task_identifier, coalesce(p.name, t.name) as policy, coalesce(q.key, m.key) as partition, j.queue_name,
  coalesce(s.priority, j.priority)::int as priority, coalesce(s.run_at, j.run_at) as run_at,
  j.attempts::int as attempts, j.max_attempts::int as max_attempts, j.last_error, j.created_at, j.key, j.locked_at, j.locked_by,
  coalesce(f.staged_id, s.id) as staged_id,
  case when j.locked_at is null and (j.attempts >= j.max_attempts or (s.id is not null and j.last_error is not null))
    then j.updated_at end as failed_at,
  _error_pattern(j.last_error) as error_pattern
from :GRAPHILE_WORKER_SCHEMA.jobs j
left join in_flight_jobs f on f.job_id = j.id
left join staged_jobs s on s.parked_job_id = j.id
left join partitions q on q.id = coalesce(f.partition_id, s.partition_id)
left join policies p on p.id = q.policy_id
-- a job that failed for good has no slot: its task tells the policy, and its flag the partition
left join lateral (
  select x.id, x.name from policy_tasks y
  join policies x on x.id = y.policy_id
  where q.id is null and y.task_identifier = j.task_identifier
) t on true
left join lateral (
  select case when min(x.key) = max(x.key) then min(x.key) end as key   -- two of 100,000 partitions may have one mark, and all lanes of one
  from (   -- worked out once
    select case when q.id is null then left(split_part(split_part(_flag_text(j.flags), '@', 2), '#', 2), 8) end as mark offset 0) k
  join partitions x
    on x.id between _marked_id(k.mark, '0') and _marked_id(k.mark, 'f')
  where x.policy_id = t.id
) m on true;

-- Staged jobs and Graphile Worker's together. A staged job has its staged id, which starts at 10^15 unless the job was
-- adopted. A job that waits for its retry is parked: it is Graphile Worker's, and has the time and priority of its staged
-- row. A job that has no attempts left is failed.
--
-- 25 is the number of _max_attempts. A function that a view calls must fix its search_path, and then it is not inlined.
create or replace view :DISPATCH_POLICY_SCHEMA.jobs as
select s.id, 'staged'::text as state, s.task_identifier, s.policy, s.partition, s.queue_name, s.priority, s.run_at,
  0 as attempts, coalesce(s.max_attempts, 25) as max_attempts, s.error as last_error, s.created_at, s.job_key as key,
  null::timestamptz as locked_at, null::text as locked_by, s.id as staged_id, null::timestamptz as failed_at,
  _error_pattern(s.error) as error_pattern
from :DISPATCH_POLICY_SCHEMA.staged_jobs s where s.job_id is null
union all
select j.* from worker_jobs j;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column jobs.id is
  'Graphile Worker''s id; of a staged job its staged id.';
comment on column jobs.state is
  'staged: it waits for its gates. parked: it failed, and waits for its retry. ready, running, failed: as in Graphile Worker.';
comment on column jobs.task_identifier is 'Its task.';
comment on column jobs.policy is
  'Name of the policy; null: its task has none, or its key is not worked out yet.';
comment on column jobs.partition is 'Key of the partition; null as policy.';
comment on column jobs.queue_name is 'Graphile Worker''s queue.';
comment on column jobs.priority is 'Lower goes first.';
comment on column jobs.run_at is 'When it is due.';
comment on column jobs.attempts is 'How many times it was started.';
comment on column jobs.max_attempts is 'How many times it may be started.';
comment on column jobs.last_error is 'Of its last attempt, or why it was quarantined.';
comment on column jobs.created_at is 'When it was added.';
comment on column jobs.key is 'Its job key.';
comment on column jobs.locked_at is 'When a worker fetched it.';
comment on column jobs.locked_by is 'The worker that runs it.';
comment on column jobs.staged_id is
  'The id it has or had in staging; null: it never was there.';
comment on column jobs.failed_at is
  'Of a parked or failed job: when its last attempt failed, or when an operator last changed it. Else null.';
comment on column jobs.error_pattern is
  'The first line of its last error, with # for each word that has a digit: jobs with the same one failed alike.';
do $$
declare
  v_column record;
begin
  for v_column in
    select a.attname, col_description(a.attrelid, a.attnum) as meaning from pg_attribute a
    where a.attrelid = 'jobs'::regclass and a.attnum > 0
  loop
    execute format('comment on column %I.worker_jobs.%I is %L',
      :'DISPATCH_POLICY_INTERNAL', v_column.attname, v_column.meaning);
  end loop;
end
$$;
