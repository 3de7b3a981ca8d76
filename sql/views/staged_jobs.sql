-- Jobs that wait for their gates, and failed ones that wait for their retry (those have a `job_id`).
create or replace view :DISPATCH_POLICY_SCHEMA.staged_jobs as
select s.id, coalesce(p.name, a.policy, t.name) as policy, coalesce(q.key, a.key) as partition, s.task_identifier,
  s.parked_job_id as job_id, s.queue_name, s.run_at, s.priority::int, s.max_attempts::int, s.job_key, s.flags, s.cost,
  s.payload, s.created_at,
  s.error, s.failures::int, case when s.waits_for is null then s.retry_at end as retry_at,
  case when s.partition_id is null then 'waiting_key' when s.waits_for is not null then 'older_run' when s.retry_at is not null then 'quarantined'
    when not s.due and s.run_at > statement_timestamp() then 'not_due'
    else _shown_reason(
      p.paused_until, q.paused_until, q.held_until, q.breaker_until, q.denied_reason) end as reason,
  s.expires_at, s.debounced_until, s.partition_id
from staged_jobs s
left join partitions q on q.id = s.partition_id
left join policies p on p.id = q.policy_id
left join lateral (
  select a.policy, a.key from arrivals a where q.id is null and a.partition_id = s.partition_id limit 1
) a on true
left join lateral (
  select x.name from policy_tasks y
  join policies x on x.id = y.policy_id
  where p.id is null and y.task_identifier = s.task_identifier
) t on true
where s.due or not s.due;   -- true of all: the jobs of a partition are in two indexes, and PostgreSQL reads both only if told so

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column staged_jobs.id is 'From 10^15 on, or the id that an adopted job had in Graphile Worker.';
comment on column staged_jobs.policy is 'Name of the policy.';
comment on column staged_jobs.partition is 'Key of the partition; null: not worked out yet.';
comment on column staged_jobs.task_identifier is 'Its task.';
comment on column staged_jobs.job_id is
  'Of a failed job that waits for its retry: its id in Graphile Worker.';
comment on column staged_jobs.queue_name is 'Graphile Worker''s queue.';
comment on column staged_jobs.run_at is 'When it is due.';
comment on column staged_jobs.priority is 'Lower goes first.';
comment on column staged_jobs.max_attempts is 'Null: 25, Graphile Worker''s default.';
comment on column staged_jobs.job_key is 'A new job of the same key replaces it.';
comment on column staged_jobs.flags is 'Graphile Worker''s flags.';
comment on column staged_jobs.cost is 'Tokens it takes from each throttle.';
comment on column staged_jobs.payload is 'As it was given.';
comment on column staged_jobs.created_at is 'When it was added.';
comment on column staged_jobs.error is 'Why it was quarantined last.';
comment on column staged_jobs.failures is 'How many times it was quarantined.';
comment on column staged_jobs.retry_at is 'When a job that was quarantined is tried again.';
comment on column staged_jobs.reason is
  'Why it waits; null: nothing holds it back. docs/operating.md explains the reasons.';
comment on column staged_jobs.expires_at is
  'When it is dropped if it is not admitted by then; null: never.';
comment on column staged_jobs.debounced_until is
  'The latest time to which further adds of its key with debounce postpone it; null: it has none.';
comment on column staged_jobs.partition_id is
  'Id of the partition in the view partitions; null: its key is not worked out yet. Finds the jobs of a partition fast.';
