-- The policies that were declared. One that is orphaned has no worker that runs its tasks, or none that has the policy. Its
-- tasks are those of its definition: while it is renamed, old workers still run its jobs.
create or replace view :DISPATCH_POLICY_SCHEMA.policies as
select p.name as policy, p.version, p.definition, p.enabled, p.paused_until > statement_timestamp() as paused,
  nullif(p.paused_until, '-infinity') as paused_until, p.paused_by, p.pause_reason,
  -- lanes of one key are one partition. Counted apart, because a distinct count sorts all
  coalesce(q.partitions, 0) - case when p.keyed_scopes then (
    select count(*) - count(distinct x.key) from partitions x where x.policy_id = p.id and x.laned)::int else 0 end as partitions,
  (select coalesce(sum(l.in_flight), 0)::int from limiters l
    where l.id = p.ahead_limiter_id) as in_flight,
  -- counted, and not counted yet, and without a partition
  (coalesce(q.staged, 0)
    + (select coalesce(sum(a.jobs), 0) from arrivals a where a.policy = p.name)
    + (select count(*) from keyless_jobs k where k.policy = p.name))::int as staged,
  not p.shared and not exists (select from workers w
    where w.stale_at > statement_timestamp() and w.tasks && array(   -- its jobs are of these, also if another has them now
      select t.value from jsonb_array_elements_text(p.definition -> 'tasks') t))
    or not exists (select from workers w
      where w.stale_at > statement_timestamp() and w.definitions ? p.name) as orphaned,
  (select count(distinct w.definitions #>> array[p.name, 'hash'])::int from workers w
    where w.stale_at > statement_timestamp() and (w.definitions #>> array[p.name, 'version'])::int = p.version)
    as live_definitions,
  exists (select from definitions x where x.policy_id = p.id and x.resolves) as resolving,
  least(p.ended_elsewhere, 2147483647)::int as ended_elsewhere, p.ended_elsewhere_at,
  p.paused_with_all and p.paused_until > statement_timestamp() as paused_with_all,
  array(
    select distinct x.name from policy_tasks t
    join policies x on x.id = t.policy_id
    where t.policy_id <> p.id and p.definition -> 'tasks' ? t.task_identifier order by x.name) as tasks_taken_by,
  d.newest_version,
  case
    when d.lives and not d.has then 'no_sweep'
    when d.newest_version = p.version then 'newest'
    when d.lives then 'workers'
    else 'no_worker' end as in_force_because,
  extract(epoch from statement_timestamp() - o.at)::float8 as oldest_due_age_seconds, o.id as oldest_due_id,
  coalesce(
    (select k.key from partitions k where k.id = o.partition_id),
    -- nobody has routed it yet
    (select a.key from arrivals a where a.partition_id = o.partition_id limit 1)) as oldest_due_partition,
  case when p.shared then array(
    select x.name from policies x
    where x.shared_ids @> array[p.id] and x.definition -> 'gates' @> jsonb_build_array(
      jsonb_build_object('name', p.name, 'shared', true)) order by x.name) end as shared_by,
  -- the policy's pause comes after the sums: before them, PostgreSQL expects many groups, and sorts 100,000 partitions
  coalesce((
    select jsonb_agg(jsonb_build_object('reason', w.reason, 'partitions', w.partitions, 'jobs', w.jobs)
      order by w.partitions desc, w.reason)
    from (
      select r.reason, sum(c.partitions) as partitions, sum(c.jobs) as jobs
      from jsonb_to_recordset(q.waiting) c (reason text, is_later boolean, partitions bigint, jobs bigint)
      cross join lateral (
        select coalesce(_shown_reason(p.paused_until, '-infinity', '-infinity', '-infinity', c.reason),
          case when c.is_later then 'not_due' else 'none' end) as reason) r
      group by r.reason) w), '[]') as waiting
from policies p
left join (   -- once for all policies. A left join: who asks for names alone has no partition counted
  select c.policy_id, sum(c.jobs) as staged, sum(c.partitions)::int as partitions, jsonb_agg(jsonb_build_object(
    'reason', c.reason, 'is_later', c.is_later, 'partitions', c.waiting, 'jobs', c.jobs)) filter (where c.waiting > 0) as waiting
  from (
    select x.policy_id, _shown_reason(
        '-infinity', x.paused_until, x.held_until, x.breaker_until, x.denied_reason) as reason,
      x.due_at > statement_timestamp() as is_later, sum(x.staged) as jobs, count(*) as partitions,
      count(*) filter (where x.staged > 0) as waiting
    from partitions x group by 1, 2, 3) c
  group by c.policy_id
) q on q.policy_id = p.id
left join lateral (
  select max(x.version) as newest_version, bool_or(x.newest_live) as lives, bool_or(x.newest_live and x.in_force) as has
  from :DISPATCH_POLICY_SCHEMA.definitions x where x.policy = p.name) d on true
left join lateral (   -- An aggregate, not a limit: so who does not ask for it does not have it looked up.
  select min(s.at) as at, (array_agg(s.id order by s.at, s.id))[1] as id,
    (array_agg(s.partition_id order by s.at, s.id))[1] as partition_id
  from policy_tasks t
  cross join lateral (   -- of each task, by the index staged_jobs_by_wait
    select greatest(j.run_at, j.created_at) as at, j.id, j.partition_id from staged_jobs j
    where j.task_identifier = t.task_identifier order by greatest(j.run_at, j.created_at) limit 1) s
  where t.policy_id = p.id and s.at <= statement_timestamp()) o on true;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column policies.policy is 'Name of the policy.';
comment on column policies.version is 'Version of its declaration.';
comment on column policies.definition is 'The whole declaration.';
comment on column policies.enabled is 'False: no gate applies.';
comment on column policies.paused is
  'Whether the policy is paused; single partitions may be paused beside.';
comment on column policies.paused_until is 'End of its pause, which may be over; null: none.';
comment on column policies.paused_by is 'Who paused it last.';
comment on column policies.pause_reason is 'Why they did.';
comment on column policies.partitions is 'Partitions that are known.';
comment on column policies.in_flight is 'Jobs that were admitted and not released yet.';
comment on column policies.staged is 'Jobs that wait in staging.';
comment on column policies.orphaned is 'True: no live worker pool has its tasks, or none has the policy.';
comment on column policies.ended_elsewhere is
  'Jobs that ended in workers without this package. Their slots were freed late.';
comment on column policies.ended_elsewhere_at is 'When the last of them was found; null: none was.';
comment on column policies.live_definitions is
  'Different definitions of this version that live worker pools have.';
comment on column policies.resolving is
  'Limits are being worked out again, because the definition has changed.';
comment on column policies.paused_with_all is
  'Whether it is paused because all policies are.';
comment on column policies.tasks_taken_by is
  'Policies that govern tasks of its definition now, as while it is renamed. They were declared later.';
comment on column policies.newest_version is
  'The highest version in force, of a worker, or declared within a day.';
comment on column policies.in_force_because is
  'Why its definition is in force. newest: no process has declared a higher version. workers: it is the newest that a live worker pool has. no_worker: no live worker pool has the policy, so it stays. no_sweep: live worker pools have another one, which the next sweep puts in force.';
comment on column policies.oldest_due_age_seconds is
  'Seconds since the oldest due job in staging was due (or added, if later), whatever it waits for. Null: none is.';
comment on column policies.oldest_due_id is 'Id of that job in staging.';
comment on column policies.oldest_due_partition is
  'Key of the partition of that job; null: not worked out yet.';
comment on column policies.shared_by is
  'Of a shared limit, which has no jobs: the policies whose gates name it. Null: it is a policy.';
comment on column policies.waiting is
  'How many partitions (lanes count by themselves) have staged jobs, and how many jobs these are, by what they wait for: a list of reason, partitions and jobs, that with the most partitions first. Of reason none they are in line. What the router has not counted yet is not in it.';
