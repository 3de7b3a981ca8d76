-- What each policy did, minute by minute. Rows are a few seconds late, because workers write them in groups. Sweeps delete
-- rows older than `metricsRetention`.
create or replace view :DISPATCH_POLICY_SCHEMA.minutes as
select p.name as policy, m.minute, m.passes, m.pass_seconds, m.staged, m.admitted, m.denied, m.quarantined, m.dropped,
  m.succeeded, m.failed,
  _quantile(0.5, m.waits, m.wait_max) as wait_p50_seconds,
  _quantile(0.95, m.waits, m.wait_max) as wait_p95_seconds,
  _quantile(0.5, m.lags, m.lag_max) as lag_p50_seconds,
  _quantile(0.95, m.lags, m.lag_max) as lag_p95_seconds,
  _quantile(0.5, m.runs, m.run_max) as run_p50_seconds,
  _quantile(0.95, m.runs, m.run_max) as run_p95_seconds, m.expired, m.shadow_denied,
  m.delayed, m.wait_max as wait_max_seconds, m.lag_max as lag_max_seconds, m.run_max as run_max_seconds
from minutes m
join policies p on p.id = m.policy_id
where m.minute > '-infinity';   -- that one is the totals

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column minutes.policy is 'Name of the policy.';
comment on column minutes.minute is 'When the minute began. A minute without a row: nothing happened.';
comment on column minutes.passes is 'Passes that claimed a partition.';
comment on column minutes.pass_seconds is 'How long these took together.';
comment on column minutes.staged is 'Jobs that were added, and retries.';
comment on column minutes.admitted is 'Jobs that were admitted.';
comment on column minutes.denied is
  'How many partitions kept due jobs after a pass, by reason, summed over the passes.';
comment on column minutes.quarantined is 'Jobs that were quarantined with an error.';
comment on column minutes.dropped is 'Jobs that were dropped, by maxPending, whenBusy or uniqueFor, or because they expired.';
comment on column minutes.succeeded is 'Runs that succeeded and freed their slots.';
comment on column minutes.failed is 'Runs that failed and freed their slots, those that are tried again among them.';
comment on column minutes.wait_p50_seconds is
  'How long half of the admitted jobs had waited at most, from when they were due (or added, if later). Within a twentieth, and never above the longest.';
comment on column minutes.wait_p95_seconds is 'The same of 95 of 100.';
comment on column minutes.lag_p50_seconds is
  'Queue lag, from a job''s admission (or run_at, if later) to its start, of half of the runs that ended at most.';
comment on column minutes.lag_p95_seconds is 'The same of 95 of 100.';
comment on column minutes.run_p50_seconds is 'How long half of the runs that ended took at most.';
comment on column minutes.run_p95_seconds is 'The same of 95 of 100.';
comment on column minutes.expired is 'Of the dropped jobs, those that expired before they were admitted.';
comment on column minutes.shadow_denied is
  'Jobs that went although a shadow gate had no room, by gate.';
comment on column minutes.delayed is
  'How many times a job was delayed, by whenBusy.';
comment on column minutes.wait_max_seconds is 'The longest of these waits; null: no job was admitted.';
comment on column minutes.lag_max_seconds is 'The longest queue lag; null: none is known.';
comment on column minutes.run_max_seconds is 'The longest run; null: none is known.';
