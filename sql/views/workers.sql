-- The worker pools that are known, the silent ones among them.
create or replace view :DISPATCH_POLICY_SCHEMA.workers as
select w.pool_id, w.slots, w.tasks, w.host, w.pid, w.started_at, w.heartbeat_at, w.stale_at > statement_timestamp() as alive,
  w.stale_at, array(select jsonb_object_keys(w.definitions) order by 1) as policies,
  coalesce(r.jobs, 0) as running,
  array(
    select l.policy || case when l.shard <> 'default' then '/' || l.shard else '' end from leases l
    where l.holder = w.pool_id and l.expires_at > statement_timestamp() order by 1) as leads,
  array(
    select p.name from policies p
    where w.definitions #>> array[p.name, 'hash'] <> p.definition_hash order by 1) as other_definitions
from workers w
left join (   -- by the ids of the jobs in flight: Graphile Worker has no index by who locked a job
  select j.locked_by, count(*)::int as jobs from in_flight_jobs f
  cross join lateral (select x.locked_by from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
  where j.locked_by is not null group by 1
) r on r.locked_by = w.pool_id
where w.buried_at is null;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column workers.pool_id is 'Graphile Worker''s id of the pool.';
comment on column workers.slots is 'Jobs it runs at once, at most.';
comment on column workers.tasks is 'Identifiers of the tasks it runs.';
comment on column workers.host is 'Name of its machine.';
comment on column workers.pid is 'Id of its process on that machine.';
comment on column workers.started_at is 'Its first heartbeat.';
comment on column workers.heartbeat_at is 'Its last heartbeat.';
comment on column workers.alive is 'Whether its heartbeats come.';
comment on column workers.stale_at is 'When it counts as dead, unless a heartbeat comes before.';
comment on column workers.policies is 'Names of the policies that it has.';
comment on column workers.running is
  'Jobs in flight that it has locked: those that it runs, or has fetched. Jobs of tasks without a policy are not counted.';
comment on column workers.leads is
  'The policies whose tick loop it runs. Of a shard other than default: policy/shard.';
comment on column workers.other_definitions is
  'The policies of which it has another definition than the one in force.';
