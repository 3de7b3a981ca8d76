-- The worker pools that are known, the silent ones among them.
create or replace view :DISPATCH_POLICY_SCHEMA.workers as
select w.pool_id, w.slots, w.tasks, w.host, w.pid, w.started_at, w.heartbeat_at, w.stale_at > clock_timestamp() as alive
from :DISPATCH_POLICY_SCHEMA._private_workers w where w.buried_at is null;
