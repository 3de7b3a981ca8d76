-- The worker pools that a sweep found dead within a day, and what became of the jobs that each had locked.
create or replace view :DISPATCH_POLICY_SCHEMA.dead_workers as
select w.pool_id, w.host, w.pid, w.slots, w.tasks, w.started_at, w.heartbeat_at, w.buried_at as died_at, w.unlocked, w.used_up
from workers w
where not w.ended and w.buried_at > statement_timestamp() - interval '1 day';

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column dead_workers.pool_id is 'Graphile Worker''s id of the pool.';
comment on column dead_workers.host is 'Name of its machine.';
comment on column dead_workers.pid is 'Id of its process on that machine.';
comment on column dead_workers.slots is 'Jobs it ran at once, at most.';
comment on column dead_workers.tasks is 'Identifiers of the tasks it ran.';
comment on column dead_workers.started_at is 'Its first heartbeat.';
comment on column dead_workers.heartbeat_at is 'Its last heartbeat.';
comment on column dead_workers.died_at is 'When a sweep found it dead, and unlocked its jobs.';
comment on column dead_workers.unlocked is 'Jobs that sweeps have unlocked because it was silent: others run them again.';
comment on column dead_workers.used_up is
  'Jobs that sweeps have unlocked in their last attempt: they have failed for good.';
