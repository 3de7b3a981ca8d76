-- The tables of dispatch_policy: what is declared, what waits, what runs.
--
-- Three facts decide when a pass may claim a partition: `due_at` (it has work), `denied_until` with `blocked_on` (its
-- limiters), and `stopped_until` (a hold, a breaker or a pause). `eligible_at` is generated from them. A stop also clears the
-- verdict of the last pass. docs/engine.md says who writes each.
--
-- Tables that every job touches have no foreign keys between them. The functions keep them consistent under their own
-- locks. A key check for each job would lock policy rows in share mode.
--
-- Each table has a primary key, because one without refuses updates and deletes as soon as a publication has all tables. The
-- key of a table to which many append begins with what it is read by, so the key is its only index.
--
-- What each table, column and type means stands in sql/comments/tables.sql, and in the database as its comment.

create table policies (
  id int generated always as identity primary key,
  name text not null unique check (octet_length(name) between 1 and 1024),
  version int not null default 0 check (version >= 0),
  definition jsonb not null,
  definition_hash text not null,
  generation int not null default 0,
  declared_at timestamptz not null,
  half_life float8 check (half_life > 0 and half_life < 'Infinity'),
  fair_by_work boolean not null default false,
  batch_size int not null default 100 check (batch_size > 0),
  admission_budget int check (admission_budget > 0),
  ahead int check (ahead >= 0),
  ahead_seconds float8 check (ahead_seconds >= 0 and ahead_seconds < 'Infinity'),
  ahead_limiter_id bigint,
  retries text not null default 'restage' check (retries in ('restage', 'bypass')),
  slot_timeout float8 check (slot_timeout > 0 and slot_timeout < 'Infinity'),
  breaker_failures int check (breaker_failures > 0),
  breaker_within float8 check (breaker_within > 0 and breaker_within < 'Infinity'),
  breaker_cooldown float8 check (breaker_cooldown > 0 and breaker_cooldown < 'Infinity'),
  max_pending int check (max_pending > 0),
  max_pending_in_all int check (max_pending_in_all > 0),
  when_full text not null default 'reject' check (when_full in ('reject', 'drop_oldest', 'drop_newest')),
  strict_pending boolean not null default false,
  unique_for float8 check (unique_for > 0 and unique_for < 'Infinity'),
  when_busy text not null default 'wait' check (when_busy in ('wait', 'skip', 'delay')),
  busy_delay float8 check (busy_delay >= 1 and busy_delay < 'Infinity'),
  job_order text check (job_order in ('strict', 'deadline')),
  load_kept_for float8 check (load_kept_for > 0 and load_kept_for < 'Infinity'),
  history_kept_for float8 check (history_kept_for > 0 and history_kept_for < 'Infinity'),
  recorded boolean not null generated always as (history_kept_for is not null or load_kept_for is not null) stored,
  watched boolean not null generated always as (
    history_kept_for is not null or load_kept_for is not null or unique_for is not null) stored,
  declared_enabled boolean not null default true,
  operator_enabled boolean,
  enabled boolean not null generated always as (coalesce(operator_enabled, declared_enabled)) stored,
  paused_until timestamptz not null default '-infinity',
  paused_at timestamptz,
  paused_by text,
  pause_reason text,
  paused_with_all boolean not null default false,
  per_worker boolean not null
    generated always as (coalesce((definition ->> 'perWorker')::boolean, false)) stored,
  cancels_after float8 generated always as ((definition ->> 'cancelsAfterSeconds')::float8) stored,
  keyed_scopes boolean not null default false,
  by_cost boolean not null default false,
  class_shares float8[],
  shared boolean not null generated always as (coalesce(definition -> 'tasks' = '[]', false)) stored,
  shared_ids int[] not null default '{}',
  unstaged_at timestamptz not null default '-infinity',
  crontab_ticked_at timestamptz not null default '-infinity',
  ended_elsewhere bigint not null default 0,
  ended_elsewhere_at timestamptz,
  check (ahead is null or ahead_seconds is null),
  check ((when_busy = 'delay') = (busy_delay is not null)),
  check (unique_for is null or retries <> 'bypass')
);

-- What concerns all policies, also those to come: one row.
create table all_policies (
  one boolean primary key default true check (one),
  paused_until timestamptz not null default '-infinity',
  paused_at timestamptz,
  paused_by text,
  pause_reason text,
  repaired jsonb not null default '{}'
);
insert into all_policies default values;

create table turns (
  policy_id int not null,
  step text not null check (step in ('route', 'admit', 'limits', 'adopt', 'events', 'pending', 'declare', 'server')),
  place int not null default 0,
  busy jsonb not null default '{}',
  primary key (policy_id, step, place)
);
insert into turns (policy_id, step) values (0, 'declare'), (0, 'server');

create table policy_tasks (
  task_identifier text primary key,
  policy_id int not null references policies (id) on delete cascade
);

create table definitions (
  policy_id int not null references policies (id) on delete cascade,
  hash text not null,
  definition jsonb not null,
  settings jsonb not null,
  in_force_at timestamptz,
  declared_at timestamptz not null,
  host text,
  pid int,
  resolves boolean not null default false,
  resolved_to uuid,
  primary key (policy_id, hash)
);

create type spending as (at timestamptz, cost float8);

create type task_duration as (task text, seconds float8);

create type gate_numbers as (
  rate float8,
  per float8,
  burst float8,
  smooth boolean,
  sliding boolean,
  calendar text,
  max int,
  initial_max int,
  min int,
  target_lag_ms float8,
  ewma_alpha float8,
  failure_decrease_factor float8,
  overload_decrease_factor float8,
  shadow boolean,
  per_worker boolean
);

create table limiters (
  id bigint generated always as identity primary key,
  policy_id int not null,
  gate text not null,
  scope_key text not null,
  kind text not null,
  breadth smallint not null,
  laned boolean not null default false,
  shared boolean not null default false,
  "position" smallint not null,
  numbers gate_numbers,
  by_tokens boolean not null generated always as ((numbers).rate is not null) stored,
  tokens float8,
  refilled_at timestamptz,
  spent spending[] not null default '{}',
  longest float8,
  longest_until timestamptz,
  in_flight int not null default 0,
  current_max int,
  lag_ewma_ms float8,
  decreased_at timestamptz,
  ending bigint[] not null default '{}',
  admitted bigint not null default 0,
  released bigint not null default 0,
  sampled_released bigint not null default 0,
  sampled_at timestamptz,
  finished_per_second float8 not null default 0,
  durations task_duration[] not null default '{}',
  elsewhere_until timestamptz not null default '-infinity',
  long_waits_until timestamptz not null default '-infinity',
  local_cap int,
  local_until timestamptz,
  local_delay float8,
  local_released bigint,
  fewest_pools int,
  wake_at timestamptz,
  reserved_for uuid,
  reserved_until timestamptz,
  arrival_id bigint not null default 0,
  version int not null default 0,
  unique (policy_id, gate, scope_key)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create index limiters_for_wake on limiters (policy_id, wake_at)
  where wake_at is not null;

-- what worker pools that came may have made room for; of a policy without perWorker none is in it
create index limiters_by_pools on limiters (policy_id, fewest_pools)
  where fewest_pools is not null;

-- What pages read of every partition stands first: PostgreSQL finds a column by walking over those before it. With `staged`
-- as the last, the sum over 100,000 partitions took 70 ms of processor time, and takes 25.
create table partitions (
  id uuid primary key,
  policy_id int not null,
  staged int not null default 0,
  due_at timestamptz not null default 'infinity',
  held_until timestamptz not null default '-infinity',
  breaker_until timestamptz not null default '-infinity',
  paused_until timestamptz not null default '-infinity',
  stopped_until timestamptz not null generated always as (greatest(held_until, breaker_until, paused_until)) stored,
  admitted_total bigint not null default 0,
  waiting_since timestamptz,
  blocked_on bigint,
  denied_reason text,
  stopped_at timestamptz,
  stopped_by text,
  key text not null,
  shard text not null default 'default',
  context jsonb not null default '{}',
  limits jsonb not null default '[]',
  weight float8 not null default 1,
  min_cost float8 not null default 1,
  limiter_ids bigint[] not null default '{}',
  limits_since timestamptz not null default '-infinity',
  arrival_id bigint not null default 0,
  version int not null default 0,
  denied_until timestamptz not null default '-infinity',
  eligible_at timestamptz not null
    generated always as (greatest(due_at, denied_until, held_until, breaker_until, paused_until)) stored,
  looked_at timestamptz not null,
  ready boolean not null
    generated always as (greatest(due_at, denied_until, held_until, breaker_until, paused_until) <= looked_at) stored,
  in_line_since timestamptz,
  goes_first boolean not null default false,
  probing boolean not null default false,
  probe_job_id bigint,
  failures int not null default 0,
  failures_since timestamptz,
  stop_reason text,
  breaker_reason text,
  breaker_at timestamptz,
  visited bigint not null default 0,
  head_priority smallint not null default 32767,
  head_run_at timestamptz not null default 'infinity',
  head_id bigint not null default 9223372036854775807,
  head_cost float8 not null default 1,
  decayed_admits float8 not null default 0,
  mean_work float8,
  decayed_at timestamptz not null,
  fair_key float8 not null,
  admitted_at timestamptz not null default '-infinity',
  dropped_total bigint not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  laned boolean not null default false
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- What waits for a time, what is ready, and what waits for a limiter.
create index partitions_by_time on partitions
  (policy_id, shard, eligible_at, visited) where eligible_at < 'infinity' and not ready;
create index partitions_by_time_fair on partitions
  (policy_id, shard, fair_key) where eligible_at < 'infinity' and not ready;
create index partitions_ready on partitions
  (policy_id, shard, fair_key, eligible_at) where ready;
create index partitions_for_wake on partitions
  (blocked_on, fair_key, due_at) where blocked_on is not null;
-- those of the last two that nobody has looked at for long
create index partitions_long_ready on partitions (policy_id, shard, looked_at) where ready;
create index partitions_long_blocked on partitions
  (blocked_on, looked_at) where blocked_on is not null;

-- those of the same two that have been in line for longest
create index partitions_oldest_ready on partitions (policy_id, shard, in_line_since)
  where ready;
create index partitions_oldest_blocked on partitions
  (blocked_on, in_line_since) where blocked_on is not null;

create index partitions_for_probe on partitions (probe_job_id)
  where probe_job_id is not null;

create index partitions_held on partitions (policy_id, held_until)
  where held_until > '-infinity';

create index partitions_broken on partitions (policy_id, breaker_until)
  where breaker_until > '-infinity';

create index partitions_paused on partitions (policy_id, paused_until)
  where paused_until > '-infinity';

create sequence ticks;

-- What is known of the server; sequences, because what they say is neither rolled back nor kept by an open transaction.
create sequence timeline;
create sequence promoted_at minvalue 0 start 0;

create table staged_jobs (
  id bigint generated by default as identity (start with 1000000000000000) primary key,
  partition_id uuid,
  task_identifier text not null,
  payload json not null default '{}',
  queue_name text,
  run_at timestamptz not null,
  run_at_given boolean not null default false,
  max_attempts smallint,
  job_key text,
  preserve_run_at boolean not null default false,
  priority smallint not null default 0,
  flags text[],
  cost float8 not null default 1 check (cost between 0 and 1e12),
  due boolean not null,
  parked_job_id bigint,
  parked_revision int,
  retry_at timestamptz,
  failures smallint not null default 0,
  error text,
  created_at timestamptz not null default clock_timestamp(),
  known_job_id bigint,
  known_revision int,
  left_partition_id uuid,
  droppable boolean not null default false,
  traceparent text,
  expires_at timestamptz,
  debounced_until timestamptz,
  sort_at timestamptz,
  waits_for bigint,
  check (expires_at is null or parked_job_id is null)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

create index staged_jobs_for_admission on staged_jobs
  (partition_id, priority, run_at, id) where due;
-- the oldest due job of a task, also of one that nobody has routed
create index staged_jobs_by_wait on staged_jobs
  (task_identifier, greatest(run_at, created_at));
create index staged_jobs_for_promotion on staged_jobs
  (partition_id, (coalesce(retry_at, run_at))) where not due;
-- jobs that go before the others of their partition; of most policies none does
create index staged_jobs_before_others on staged_jobs (partition_id, due, sort_at, id)
  where sort_at is not null;
-- Other policies' jobs are not in it, and cost nothing. Without it a call of one job walked past 150,000 of theirs (190 ms).
create index staged_jobs_by_age on staged_jobs (task_identifier, id)
  where droppable and parked_job_id is null;
-- what a pass and a sweep look for; jobs that never expire are not in them
create index staged_jobs_by_expiry on staged_jobs (partition_id, expires_at)
  where expires_at is not null;
create index staged_jobs_expired on staged_jobs (expires_at)
  where expires_at is not null;
create index staged_jobs_quarantined on staged_jobs (retry_at)
  where retry_at is not null;
create index staged_jobs_by_run on staged_jobs (waits_for)
  where waits_for is not null;
create unique index staged_jobs_by_key on staged_jobs (job_key)
  where job_key is not null;
create unique index staged_jobs_by_parked_job on staged_jobs (parked_job_id)
  where parked_job_id is not null;

create table arrivals (
  id bigint generated always as identity,
  policy text not null,
  partition_id uuid not null,
  key text not null check (octet_length(key) <= 1024),
  shard text,
  version int not null default 0,
  context jsonb,
  weight float8 check (weight between 1e-230 and 1e12),
  limits jsonb,
  due_at timestamptz not null default 'infinity',
  head_priority smallint not null default 32767,
  head_run_at timestamptz not null default 'infinity',
  head_id bigint not null default 9223372036854775807,
  min_cost float8 not null default 1,
  pause jsonb,
  outcome jsonb,
  head_changed boolean not null default false,
  jobs int not null default 0,
  primary key (policy, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create index arrivals_of_stops on arrivals (policy, id) where pause is not null;

create table keyless_jobs (
  staged_id bigint primary key,
  policy text not null,
  partition_key text,
  retry_at timestamptz not null default '-infinity',
  failures smallint not null default 0
);
create index keyless_jobs_for_keying on keyless_jobs (policy, retry_at);

create type place as (
  staged_id bigint, run_at timestamptz, run_at_given boolean, added_at timestamptz, expires_at timestamptz
);

create table in_flight_jobs (
  job_id bigint primary key,
  staged_id bigint not null,
  admission bigint not null,
  revision int not null,
  policy_id int not null,
  partition_id uuid not null,
  limiter_ids bigint[] not null,
  cost float8 not null,
  paid jsonb,
  work float8,
  sort_at timestamptz,
  place place,
  admitted_at timestamptz not null,
  attempt smallint,
  pool_id text,
  started_at timestamptz,
  missing_since timestamptz,
  cancelled_at timestamptz,
  cancelled_by text,
  cancel_reason text,
  min_run float8,
  lent_until timestamptz
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create index in_flight_jobs_by_mark on in_flight_jobs (missing_since)
  where missing_since is not null;
create index in_flight_jobs_cancelled on in_flight_jobs (job_id)
  where cancelled_at is not null;

create table superseded_jobs (
  job_id bigint,
  revision int,
  staged_id bigint,
  was_parked boolean not null default false,
  primary key (job_id, was_parked)
);

create table pending (
  id bigint generated always as identity,
  policy text not null,
  jobs int not null,
  primary key (policy, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- What happened, for those who read it. Passes, releases, verbs and adds append to it, and wait for nobody.
create table events (
  id bigint generated always as identity,
  policy_id int not null,
  at timestamptz not null default clock_timestamp(),
  kind text not null
    check (kind in ('admitted', 'left', 'ended', 'completed', 'moved', 'waits', 'stopped', 'came', 'dropped',
      'elsewhere')),
  staged_id bigint,
  job_id bigint,
  partition_id uuid,
  facts jsonb not null default '{}',
  primary key (policy_id, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index events_by_job on events (staged_id)
  where staged_id is not null;

create table unique_keys (
  policy_id int not null,
  job_key text not null,
  staged_id bigint,
  ended_at timestamptz,
  look_at timestamptz not null,
  primary key (policy_id, job_key)
) with (fillfactor = 70);
create index unique_keys_by_job on unique_keys (staged_id);
create index unique_keys_to_look_at on unique_keys (look_at);

create table freed (
  id bigint generated always as identity,
  policy_id int not null,
  limiter_id bigint not null,
  at timestamptz not null default clock_timestamp(),
  primary key (policy_id, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create table overrides (
  id bigint generated always as identity primary key,
  policy_id int not null,
  gate text not null,
  scope_key text,
  context jsonb,
  context_pair jsonb,
  set jsonb not null,
  from_at timestamptz not null default '-infinity',
  until_at timestamptz not null default 'infinity',
  set_at timestamptz not null default clock_timestamp(),
  taken_back boolean not null default false,
  announce_at timestamptz not null default '-infinity',
  announce_again_at timestamptz not null default 'infinity',
  announced_to text,
  to_announce bigint[] not null default '{}',
  set_by text,
  reason text,
  is_hold boolean not null default false,
  check (from_at < until_at),
  check (context is null or scope_key is null),
  check ((context is null) = (context_pair is null))
);
-- An index for each kind. With one for all kinds, a pass read each of 10,000 limits by context for each limiter.
create index overrides_by_key on overrides (policy_id, gate, scope_key)
  where scope_key is not null;
create index overrides_of_all on overrides (policy_id, gate)
  where scope_key is null and context_pair is null;
create index overrides_by_context on overrides (policy_id, context_pair)
  where context_pair is not null;
create index overrides_for_announcement on overrides
  (policy_id, least(announce_at, announce_again_at));
create index overrides_left on overrides (policy_id) where to_announce <> '{}';

create table workers (
  pool_id text primary key,
  slots int not null check (slots >= 0),
  tasks text[] not null,
  host text,
  pid int,
  started_at timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  stale_after interval not null,
  stale_at timestamptz not null,
  buried_at timestamptz,
  unlocked int not null default 0,
  used_up int not null default 0,
  ended boolean not null default false,
  clock_behind interval not null default '0',
  definitions jsonb not null default '{}',
  unbroken_since timestamptz not null default clock_timestamp(),
  pooled boolean not null default false,
  server text
) with (fillfactor = 70);

create table leases (
  policy text not null,
  shard text not null,
  holder text not null,
  expires_at timestamptz not null,
  primary key (policy, shard)
) with (fillfactor = 70);

create table audit (
  id bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  verb text not null,
  policy text,
  partition text,
  gate text,
  scope_key text,
  detail jsonb not null default '{}',
  reason text,
  by text,
  matched int not null,
  changed int not null,
  form text collate "C"
);

create index audit_for_collection on audit (at);
-- What ended a limit: of 10,000 accounts with a limit each, none looks at the calls for the others.
create index audit_by_limit on audit (policy, gate, (coalesce(scope_key, '')), id);
-- Of two that send a form at the same time, one waits here for the other, and then fails.
create unique index audit_of_form on audit (form) where form is not null;
create index audit_of_removals on audit (policy, id) where verb = 'remove_policy';

-- Passes, the router and releases append to it, and wait for nobody. The lists go to disk as they are: to compress random
-- numbers takes time and saves nothing.
create table activity (
  id bigint generated always as identity primary key,
  policy_id int not null,
  at timestamptz not null,
  passes int not null default 0,
  pass_seconds float8 not null default 0,
  staged int not null default 0,
  admitted int not null default 0,
  denied jsonb not null default '{}',
  shadow_denied jsonb not null default '{}',
  left_to_pass jsonb not null default '{}',
  quarantined int not null default 0,
  dropped int not null default 0,
  expired int not null default 0,
  delayed int not null default 0,
  succeeded int not null default 0,
  failed int not null default 0,
  waits real[] not null default '{}',
  lags real[] not null default '{}',
  runs real[] not null default '{}',
  caps jsonb not null default '[]'
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
alter table activity
  alter column waits set storage external, alter column lags set storage external, alter column runs set storage external;

-- The row of a policy's totals changes with each fold.
create table minutes (
  policy_id int not null,
  minute timestamptz not null,
  passes bigint not null,
  pass_seconds float8 not null,
  last_pass_at timestamptz,
  staged bigint not null,
  admitted bigint not null,
  denied jsonb not null,
  shadow_denied jsonb not null default '{}',
  left_to_pass jsonb not null default '{}',
  quarantined bigint not null,
  dropped bigint not null,
  expired bigint not null,
  delayed bigint not null,
  succeeded bigint not null,
  failed bigint not null,
  waits jsonb not null,
  wait_seconds float8 not null,
  wait_max float8,
  lags jsonb not null,
  lag_seconds float8 not null,
  lag_max float8,
  runs jsonb not null,
  run_seconds float8 not null,
  run_max float8,
  caps jsonb not null default '[]',
  primary key (policy_id, minute)
) with (fillfactor = 70);
create index minutes_for_collection on minutes (minute);

create table load (
  policy_id int not null,
  minute timestamptz not null,
  partition_id uuid not null,
  seconds smallint[] not null,
  came int[] not null,
  cost float8 not null,
  admitted bigint not null,
  ended bigint not null,
  run_seconds float8 not null,
  primary key (policy_id, minute, partition_id)
);

create table history (
  staged_id bigint primary key,
  policy_id int not null,
  partition text,
  task_identifier text,
  job_key text,
  job_id bigint,
  added_at timestamptz,
  due_at timestamptz,
  admitted_at timestamptz,
  last_admitted_at timestamptz,
  started_at timestamptz,
  ended_at timestamptz,
  outcome text check (outcome in ('succeeded', 'failed', 'removed', 'dropped', 'replaced', 'gone')),
  attempts int,
  error text,
  waited jsonb not null default '{}',
  failed_attempts jsonb not null default '[]',
  trace_id text,
  check ((ended_at is null) = (outcome is null))
);
create index history_by_job on history (job_id);
-- those that have not ended are read page by page, by staged_id
create index history_by_end on history (policy_id, ended_at, staged_id);

create table waits (
  id bigint generated always as identity primary key,
  policy_id int not null,
  partition_id uuid not null,
  reason text,
  from_at timestamptz not null,
  until_at timestamptz,
  waited jsonb,
  check ((until_at is null) = (waited is not null)),
  check (from_at <= until_at)
);
create unique index waits_of_reasons on waits (partition_id, from_at) where until_at is null;
create index waits_of_stops on waits (policy_id, partition_id, until_at) where until_at is not null;

-- Job groups that are open. A group's row is locked by whoever adds up what has ended of it, and by nobody else.
create table groups (
  id bigint generated always as identity primary key,
  callback json not null,
  created_at timestamptz not null default clock_timestamp(),
  total int not null,
  succeeded int not null default 0,
  failed int not null default 0,
  removed int not null default 0,
  dropped int not null default 0,
  replaced int not null default 0,
  gone int not null default 0,
  jobs_left int not null generated always as (total - succeeded - failed - removed - dropped - replaced - gone) stored
    check (jobs_left >= 0),
  error text
) with (fillfactor = 70);

create table group_jobs (
  staged_id bigint not null,
  group_id bigint not null,
  job_id bigint,
  primary key (staged_id, group_id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
create index group_jobs_by_job on group_jobs (job_id) where job_id is not null;
create index group_jobs_by_group on group_jobs (group_id, staged_id);

create type candidate as (
  ct tid,
  staged_id bigint,
  partition_id uuid,
  pos int,
  priority smallint,
  run_at timestamptz,
  cost float8,
  vt float8,
  overtakes boolean,
  chosen boolean,
  is_plain boolean,
  due_at timestamptz
);
create type admission as (
  job_id bigint, staged_id bigint, admitted boolean, counted boolean, revision int, waits_elsewhere boolean,
  anew boolean
);

create type known as (
  id uuid, limits jsonb, arrival_id bigint, version int, weight float8,
  head_priority smallint, head_run_at timestamptz, head_id bigint,
  due_at timestamptz, ready boolean,
  blocked_on bigint, denied_until timestamptz, denied_reason text,
  decayed float8
);

create type claimed as (
  id uuid, shard text, staged int, limiter_ids bigint[],
  weight float8, min_cost float8,
  due_at timestamptz, waiting_since timestamptz,
  decayed_admits float8, decayed_at timestamptz, mean_work float8,
  admitted_at timestamptz,
  first_jobs int, probing boolean, probe_job_id bigint,
  head_priority smallint, head_run_at timestamptz, head_id bigint,
  key text, lane int, lanes int
);

create type move as (
  key text, lane text, shard text, context jsonb, weight float8, cost float8, limits jsonb
);
create type retry as (
  attempt int,
  revision int,
  "giveUp" boolean,
  native boolean,
  "after" float8,
  task text,
  priority smallint,
  "maxAttempts" smallint,
  refund boolean,
  "jobKey" text,
  move move
);

create type finished_job as (
  job bigint, task text, admission bigint, ok boolean, lag_ms float8, duration_ms float8, attempt int, ends boolean,
  retries boolean, retry retry, ordinality bigint, error text, settled jsonb,
  staged_id bigint, says_nothing boolean
);

create type settlement as (
  job_id bigint, policy_id int, limiter_id bigint, difference float8, since timestamptz, paid jsonb
);

create type room_before as (
  id bigint, gate text, kind text, breadth smallint, "position" smallint, scope_key text,
  rate float8, per float8, capacity float8, tokens float8, spent spending[],
  slots int, cap int, in_flight int, reserved_for uuid, reserved_until timestamptz, ending int,
  measured float8, calendar text, window_seconds float8, remembered float8, admitted bigint,
  shadow_tokens float8, shadow_slots int, share int, pools int, rises_at timestamptz, kept float8, reserved int
);

create type room_after as (
  before room_before,
  jobs int,
  slots int,
  tokens float8,
  spent spending[]
);

create type verdict as (
  partition_id uuid, limiter_ids bigint[], weight float8, due_at timestamptz, waiting_since timestamptz,
  decayed float8, admitted int, probe_job_id bigint,
  head_id bigint, head_priority smallint, head_run_at timestamptz, head_cost float8,
  next_run_at timestamptz, gone int,
  ord int, breadth smallint, kind text, by_tokens boolean, ready_at timestamptz,
  reason text, denied_until timestamptz, blocked_on bigint
);

create type :DISPATCH_POLICY_SCHEMA.added_job as (
  id bigint, staged boolean, task_identifier text, queue_name text, run_at timestamptz, max_attempts int, job_key text,
  priority int, flags text[], created_at timestamptz, policy text, partition text, shard text,
  dropped boolean
);

create type :DISPATCH_POLICY_SCHEMA.exported_job as (
  id bigint, policy text, partition text, identifier text, payload json, queue_name text, run_at timestamptz,
  max_attempts int, job_key text, priority int, flags text[], created_at timestamptz, attempts int, last_error text,
  expires_at timestamptz
);

create type :DISPATCH_POLICY_SCHEMA.db_job as (
  id bigint, job_queue_id int, task_id int, payload json, priority int, run_at timestamptz, attempts int,
  max_attempts int, last_error text, created_at timestamptz, updated_at timestamptz, key text, revision int,
  locked_at timestamptz, locked_by text, flags jsonb, is_available boolean
);

create type waiting_job as (
  id bigint, revision int, attempts int, job_key text, queue_name text, was_admitted boolean
);

create type staging as (
  n int, staged boolean, id bigint, task_identifier text, queue_name text, run_at timestamptz, max_attempts int,
  job_key text, priority int, flags text[], created_at timestamptz, policy text, partition text, shard text, job json,
  admitted boolean
);
