-- The worker pools that are known, the silent ones among them.
create or replace view :DISPATCH_POLICY_SCHEMA.workers as
select w.pool_id, w.slots, w.tasks, w.host, w.pid, w.started_at, w.heartbeat_at, w.stale_at > statement_timestamp() as alive,
  w.stale_at, array(select jsonb_object_keys(w.definitions) order by 1) as policies
from workers w where w.buried_at is null;

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
