-- The tables of dispatch_policy: what is declared, what waits, what runs.
--
-- Three facts decide when a partition may be looked at, and each has one writer: `due_at` (arrivals lower it,
-- the tick sets it on), `denied_until` with `blocked_on` (the tick; waking), `held_until` and `paused_until`
-- (operators and code). Nobody shortens another's fact, so `eligible_at` is generated from them.
--
-- Foreign keys are left out between tables that every job touches: the functions keep them consistent under
-- their own locks, and a key check per job would lock policy rows in share mode.

create table :DISPATCH_POLICY_SCHEMA._private_policies (
  id int generated always as identity primary key,
  name text not null unique check (octet_length(name) between 1 and 1024),
  version int not null default 0 check (version >= 0),
  definition jsonb not null,
  definition_hash text not null,
  declared_at timestamptz not null,
  half_life float8 check (half_life > 0 and half_life < 'Infinity'),   -- seconds; null: no fairness
  fair_by_work boolean not null default false,                         -- shares of the workers' time, not of the jobs
  batch_size int not null default 100 check (batch_size > 0),          -- jobs of one partition in one tick
  admission_budget int check (admission_budget > 0),                   -- jobs of all partitions in one tick
  ahead int check (ahead >= 0),                                        -- jobs in flight beyond the workers' slots
  ahead_auto boolean not null default true,                            -- ahead follows the workers' pace
  ahead_limiter_id bigint,
  retries text not null default 'restage' check (retries in ('restage', 'bypass')),
  slot_timeout float8 check (slot_timeout > 0 and slot_timeout < 'Infinity'),   -- seconds a running job keeps its slot
  -- this many failures of a partition within so many seconds hold it for so many seconds
  breaker_failures int check (breaker_failures > 0),
  breaker_within float8 check (breaker_within > 0 and breaker_within < 'Infinity'),
  breaker_cooldown float8 check (breaker_cooldown > 0 and breaker_cooldown < 'Infinity'),
  -- a bounded backlog: jobs staged of one partition, of all; what to do with one more
  max_pending int check (max_pending > 0),
  max_pending_in_all int check (max_pending_in_all > 0),
  when_full text not null default 'reject' check (when_full in ('reject', 'drop_oldest', 'drop_newest')),
  strict_pending boolean not null default false,
  when_busy text not null default 'wait' check (when_busy in ('wait', 'skip')),
  declared_enabled boolean not null default true,
  operator_enabled boolean,                                            -- utils.enable / disable; null: as declared
  enabled boolean not null generated always as (coalesce(operator_enabled, declared_enabled)) stored,
  paused_until timestamptz not null default '-infinity',
  paused_by text,
  pause_reason text
);

-- Whose turn it is, by a lock on the row: one router of a policy at a time ('route'), one bounded pass ('admit'), one
-- change of its overrides ('limits'), one producer of a strict backlog ('pending': place 0 for the bound on all, the
-- others for partitions, by hash), and of policy 0 one declaration ('declare'). Advisory locks would do the same, but
-- anybody who can connect may take them. The policies' own rows are no such locks: an operator's open transaction locks
-- them. Made when a policy is declared; never updated, but for `busy`.
create table :DISPATCH_POLICY_SCHEMA._private_turns (
  policy_id int not null,
  step text not null check (step in ('route', 'admit', 'limits', 'pending', 'declare')),
  place int not null default 0,
  busy jsonb not null default '{}',          -- of 'admit': limiters that passes found locked, and since when
  primary key (policy_id, step, place)
);
insert into :DISPATCH_POLICY_SCHEMA._private_turns (policy_id, step) values (0, 'declare');

create table :DISPATCH_POLICY_SCHEMA._private_policy_tasks (
  task_identifier text primary key,
  policy_id int not null references :DISPATCH_POLICY_SCHEMA._private_policies (id) on delete cascade
);

-- What a sliding window remembers: this much was spent, the last of it then.
create type :DISPATCH_POLICY_SCHEMA._private_spending as (at timestamptz, cost float8);

-- A gate's numbers, as a policy's definition gives them: all that tells two gates of one kind apart. This is their one
-- list: routing, overrides and comparisons take the numbers as a whole.
create type :DISPATCH_POLICY_SCHEMA._private_gate_numbers as (
  -- throttle: `rate` tokens per `per` seconds into a bucket of greatest(coalesce(burst, rate), 1)
  rate float8,
  per float8,
  burst float8,
  smooth boolean,          -- a bucket of one token that makes up for passes that come late
  sliding boolean,         -- no bucket: greatest(rate, 1) in any `per` seconds
  -- concurrency
  max int,
  -- adaptive concurrency
  initial_max int,
  min int,
  target_lag_ms float8,
  ewma_alpha float8,
  failure_decrease_factor float8,
  overload_decrease_factor float8
);

-- One gate's live state for one scope key. `breadth`: 0 one partition, 1 a key of its own, 2 the policy, 3 ahead.
create table :DISPATCH_POLICY_SCHEMA._private_limiters (
  id bigint generated always as identity primary key,
  policy_id int not null,
  gate text not null,
  scope_key text not null,
  kind text not null check (kind in ('throttle', 'concurrency', 'adaptive_concurrency', 'ahead')),
  breadth smallint not null check (breadth between 0 and 3),
  "position" smallint not null,
  numbers :DISPATCH_POLICY_SCHEMA._private_gate_numbers,     -- null: the ahead bound has none
  -- a job spends tokens, which come back with the time; else it occupies a slot until its release
  by_tokens boolean not null generated always as ((numbers).rate is not null) stored,
  -- what a bucket had at a time
  tokens float8,
  refilled_at timestamptz,
  -- what a sliding window remembers
  spent :DISPATCH_POLICY_SCHEMA._private_spending[] not null default '{}',
  longest float8,                            -- seconds a window had that was longer, which counts them should it come back
  longest_until timestamptz,                 -- remembered until then
  -- slots that are occupied
  in_flight int not null default 0 check (in_flight >= 0),
  -- what an adaptive limit has learnt
  current_max int,
  lag_ewma_ms float8,
  decreased_at timestamptz,
  -- ahead: jobs that were released while Graphile Worker still recorded their end, and how fast the policy's jobs finish
  ending bigint[] not null default '{}',
  released bigint not null default 0,
  sampled_released bigint not null default 0,
  sampled_at timestamptz,
  finished_per_second float8 not null default 0,
  -- waiters are woken then: the next token of a shared throttle, the end of a reservation
  wake_at timestamptz,
  -- the partition for which one slot is kept while it waits for another scope, and until when
  reserved_for uuid,
  reserved_until timestamptz,
  -- where the numbers come from: an arrival takes effect only when it is later
  arrival_id bigint not null default 0,
  version int not null default 0,
  unique (policy_id, gate, scope_key)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create index limiters_for_wake on :DISPATCH_POLICY_SCHEMA._private_limiters (policy_id, wake_at)
  where wake_at is not null;

create table :DISPATCH_POLICY_SCHEMA._private_partitions (
  id uuid primary key,                       -- md5 of policy and key: staging needs no look-up
  policy_id int not null,
  key text not null check (octet_length(key) <= 1024),
  shard text not null default 'default',
  context jsonb not null default '{}',
  limits jsonb not null default '[]',        -- as last resolved
  weight float8 not null default 1 check (weight between 1e-12 and 1e12),
  min_cost float8 not null default 1 check (min_cost >= 0),   -- the cheapest job ever staged: bounds a claim
  limiter_ids bigint[] not null default '{}',                 -- narrow scopes first
  arrival_id bigint not null default 0,
  version int not null default 0,
  due_at timestamptz not null default 'infinity',
  denied_until timestamptz not null default '-infinity',
  held_until timestamptz not null default '-infinity',
  paused_until timestamptz not null default '-infinity',
  eligible_at timestamptz not null
    generated always as (greatest(due_at, denied_until, held_until, paused_until)) stored,
  blocked_on bigint,
  denied_reason text,
  waiting_since timestamptz,                 -- a pass left it due jobs, and has admitted none of it since
  probing boolean not null default false,    -- after a hold one job goes at a time, until one has succeeded
  probe_job_id bigint,                       -- the one that is out
  failures int not null default 0,           -- that the breaker counts, since
  failures_since timestamptz,
  stopped_by text,                           -- who paused or held, and why
  stop_reason text,
  visited bigint not null default 0,         -- tick that looked at it last
  head_priority smallint not null default 32767,
  head_run_at timestamptz not null default 'infinity',
  head_id bigint not null default 9223372036854775807,
  head_cost float8 not null default 1,       -- while it waits
  -- jobs, or where fairness is by work the seconds they ran
  decayed_admits float8 not null default 0 check (decayed_admits >= 0 and decayed_admits < 'Infinity'),
  mean_work float8,                          -- seconds a job ran lately, where fairness is by work
  decayed_at timestamptz not null,
  fair_key float8 not null default 0,
  admitted_total bigint not null default 0,
  admitted_at timestamptz not null default '-infinity',       -- last
  dropped_total bigint not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  -- a waiter has due work and is neither paused nor held
  check (blocked_on is null
    or (due_at < 'infinity' and held_until = '-infinity' and paused_until = '-infinity'))
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- The ready queue and its order in one.
create index partitions_for_claim on :DISPATCH_POLICY_SCHEMA._private_partitions
  (policy_id, shard, eligible_at, visited) where eligible_at < 'infinity';
create index partitions_for_wake on :DISPATCH_POLICY_SCHEMA._private_partitions
  (blocked_on, fair_key) where blocked_on is not null;

create index partitions_for_probe on :DISPATCH_POLICY_SCHEMA._private_partitions (probe_job_id)
  where probe_job_id is not null;

create sequence :DISPATCH_POLICY_SCHEMA._private_ticks;

-- Ids start at 10^15: never a Graphile Worker job id, and exact in JavaScript.
create table :DISPATCH_POLICY_SCHEMA._private_staged_jobs (
  id bigint generated by default as identity (start with 1000000000000000) primary key,
  partition_id uuid,                         -- null until a process that has the policy works out the key
  task_identifier text not null,
  payload json not null default '{}',
  queue_name text,
  run_at timestamptz not null,
  run_at_given boolean not null default false,   -- else Graphile Worker gets the time of admission
  max_attempts smallint,
  job_key text,
  preserve_run_at boolean not null default false,
  priority smallint not null default 0,
  flags text[],
  cost float8 not null default 1 check (cost between 0 and 1e12),
  due boolean not null,                      -- run_at has come: only these are in the admission index
  parked_job_id bigint,                      -- a failed job that waits inside Graphile Worker for its next admission
  parked_revision int,                       -- of its row: the next job of its key may get it
  retry_at timestamptz,                      -- set aside until then, after `failures` refusals
  failures smallint not null default 0,
  error text,
  created_at timestamptz not null default clock_timestamp(),
  -- what Graphile Worker had under its key when it was added: any other row was added later, and the newest counts
  known_job_id bigint,
  known_revision int,
  droppable boolean not null default false   -- its policy drops the oldest of all its jobs when there are too many
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

create index staged_jobs_for_admission on :DISPATCH_POLICY_SCHEMA._private_staged_jobs
  (partition_id, priority, run_at, id) where due;
create index staged_jobs_for_promotion on :DISPATCH_POLICY_SCHEMA._private_staged_jobs
  (partition_id, (coalesce(retry_at, run_at))) where not due;
-- Other policies' jobs are not in it, and cost nothing. Without it a call of one job walked past 150,000 of theirs (190 ms).
create index staged_jobs_by_age on :DISPATCH_POLICY_SCHEMA._private_staged_jobs (task_identifier, id)
  where droppable and parked_job_id is null;
create unique index staged_jobs_by_key on :DISPATCH_POLICY_SCHEMA._private_staged_jobs (job_key)
  where job_key is not null;
create unique index staged_jobs_by_parked_job on :DISPATCH_POLICY_SCHEMA._private_staged_jobs (parked_job_id)
  where parked_job_id is not null;

-- Notes, appended by enqueuers: this partition has new work. Routing consumes them.
create table :DISPATCH_POLICY_SCHEMA._private_arrivals (
  id bigint generated always as identity,
  policy text not null,
  partition_id uuid not null,
  key text not null check (octet_length(key) <= 1024),
  shard text,
  version int not null default 0,
  context jsonb,
  weight float8 check (weight between 1e-12 and 1e12),
  limits jsonb,                              -- null: as the partition has them
  due_at timestamptz not null default 'infinity',
  head_priority smallint not null default 32767,
  head_run_at timestamptz not null default 'infinity',
  head_id bigint not null default 9223372036854775807,
  min_cost float8 not null default 1,
  pause jsonb,                               -- a pause of a partition that does not exist yet
  outcome jsonb,                             -- how jobs ended, where somebody counts it: a breaker, fairness
  head_changed boolean not null default false,   -- the partition's next job may be another now, see _head_changed
  primary key (policy, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Jobs staged from SQL whose key only JavaScript can work out.
create table :DISPATCH_POLICY_SCHEMA._private_keyless_jobs (
  staged_id bigint primary key,
  policy text not null,
  partition_key text,
  retry_at timestamptz not null default '-infinity',
  failures smallint not null default 0
);
create index keyless_jobs_for_keying on :DISPATCH_POLICY_SCHEMA._private_keyless_jobs (policy, retry_at);

create table :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs (
  job_id bigint primary key,                 -- Graphile Worker's
  staged_id bigint not null,
  -- A slot belongs to an admission. Graphile Worker reuses its row for the next job of a key: the admission, which is
  -- the time of its transaction in microseconds, tells two jobs of one row apart, and so does the row's revision.
  admission bigint not null,
  revision int not null,
  policy_id int not null,
  partition_id uuid not null,
  limiter_ids bigint[] not null,             -- what it took, whatever the policy says today
  cost float8 not null,
  work float8,                               -- seconds its partition was charged, where fairness is by work
  admitted_at timestamptz not null,
  attempt smallint,                          -- whose slot it is since a retry or an unlocking; null: the admitted one's
  pool_id text,                              -- where that attempt runs, once it does
  started_at timestamptz,                    -- when it began to; null: about when it was fetched
  missing_since timestamptz                  -- a sweep found no such job in Graphile Worker
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create index in_flight_jobs_by_mark on :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs (missing_since)
  where missing_since is not null;

-- Jobs of Graphile Worker that were added past their policy and are staged again: so that a crash before the original
-- completed cannot stage a second copy.
create table :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs (
  job_id bigint primary key,                 -- the original's
  revision int not null,                     -- the row is reused for the next job of its key, which is another one
  staged_id bigint,
  taken_over_at timestamptz not null default clock_timestamp()
);

-- Failed jobs that are parked in Graphile Worker, and that nobody will admit: one of their key was staged. That one takes
-- their row; should it leave staging otherwise, they fail for good.
create table :DISPATCH_POLICY_SCHEMA._private_replaced_jobs (
  job_id bigint primary key
);

-- Of policies with a bound on their whole backlog: how many jobs were staged, or left staging. Their sum is what is
-- pending; the router adds them up.
create table :DISPATCH_POLICY_SCHEMA._private_pending (
  policy text not null,
  jobs int not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index pending_by_policy on :DISPATCH_POLICY_SCHEMA._private_pending (policy);

-- Notes of dropped jobs, for the next tick to count and to tell.
create table :DISPATCH_POLICY_SCHEMA._private_drops (
  policy text not null,
  partition_id uuid,                         -- null: still to be worked out
  key text,
  reason text not null check (reason in ('max_pending', 'busy')),
  jobs int not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index drops_by_policy on :DISPATCH_POLICY_SCHEMA._private_drops (policy);

-- Notes, appended by whatever makes room: this limiter may have room. A note stays until the limiter is full or
-- nobody waits for it.
create table :DISPATCH_POLICY_SCHEMA._private_freed (
  id bigint generated always as identity,
  policy_id int not null,
  limiter_id bigint not null,
  primary key (policy_id, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- An operator's temporary limits. scope_key null: every key of the gate. Where several hold at a time, the last one does.
-- Those that are over stay for a day: a bucket that nobody looked at since gained by their numbers while they held.
create table :DISPATCH_POLICY_SCHEMA._private_overrides (
  id bigint generated always as identity primary key,
  policy_id int not null,
  gate text not null,
  scope_key text,
  set jsonb not null,
  from_at timestamptz not null default '-infinity',
  until_at timestamptz not null default 'infinity',
  set_at timestamptz not null default clock_timestamp(),
  taken_back boolean not null default false,   -- cleared or replaced at `until_at`, whatever time a tick goes by
  announce_at timestamptz not null default '-infinity',    -- when the router next tells waiters: of its start, its end
  to_announce bigint[] not null default '{}',  -- limiters that somebody had locked by then: those who wait are told later
  set_by text,
  reason text,
  check (from_at < until_at)
);
create index overrides_by_gate on :DISPATCH_POLICY_SCHEMA._private_overrides (policy_id, gate, scope_key);

create table :DISPATCH_POLICY_SCHEMA._private_workers (
  pool_id text primary key,
  slots int not null check (slots >= 0),
  tasks text[] not null,
  host text,
  pid int,
  started_at timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  stale_after interval not null,
  stale_at timestamptz not null,             -- silent since then: counted dead
  buried_at timestamptz,                     -- a sweep unlocked its jobs; kept for those it may yet fetch, should it live
  gone boolean not null default false,       -- it ended by itself; kept for a fetch that was on its way
  clock_behind interval not null default '0',     -- the clock it fetches jobs by, where that is not the database's
  unbroken_since timestamptz not null default clock_timestamp()   -- no heartbeat came late since
) with (fillfactor = 70);

-- One tick loop leads per policy and shard; the others stand by. A lease only saves work: ticks at once are correct.
create table :DISPATCH_POLICY_SCHEMA._private_leases (
  policy text not null,
  shard text not null,
  holder text not null,
  expires_at timestamptz not null,
  primary key (policy, shard)
) with (fillfactor = 70);

create table :DISPATCH_POLICY_SCHEMA._private_audit (
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
  changed int not null
);

-- What a tick looks at: the first due jobs of a claimed partition, and which of them it admits.
create type :DISPATCH_POLICY_SCHEMA._private_candidate as (
  ct tid,
  staged_id bigint,
  partition_id uuid,
  pos int,
  priority smallint,
  run_at timestamptz,
  cost float8,
  chosen boolean
);
-- `counted`: the job may be in flight already, under the same job key.
-- `revision`: of Graphile Worker's row.
create type :DISPATCH_POLICY_SCHEMA._private_admission as (
  job_id bigint, staged_id bigint, admitted boolean, counted boolean, revision int
);

-- What arrivals say of one partition together, see _arrivals_by_partition.
create type :DISPATCH_POLICY_SCHEMA._private_news as (
  partition_id uuid,
  newest :DISPATCH_POLICY_SCHEMA._private_arrivals,           -- whose context and limits count
  due_at timestamptz, min_cost float8, shard text,
  head_priority smallint, head_run_at timestamptz, head_id bigint,
  head_changed boolean,                      -- its next job may be another now
  later_at timestamptz,                      -- when the first job is due that is not due yet
  pause jsonb, paused_until timestamptz, held_until timestamptz
);

create type :DISPATCH_POLICY_SCHEMA._private_limiter_ids as (
  partition_id uuid, ids bigint[]            -- from narrow to broad, without the ahead bound
);

-- A limiter of a claimed partition, see _uses. One that is unknown has no numbers.
create type :DISPATCH_POLICY_SCHEMA._private_use as (
  partition_id uuid, limiter_id bigint, breadth smallint,
  slots int,                                 -- for all claimed partitions together
  tokens float8, capacity float8, reserved_for uuid,
  jobs float8                                -- how many of the partition's jobs could pass it
);

-- What a ranking reads of a claimed partition, see _offers. `weight` and `decayed` are in its own jobs.
create type :DISPATCH_POLICY_SCHEMA._private_offer as (
  partition_id uuid, head_priority smallint, head_run_at timestamptz, head_id bigint, weight float8, decayed float8,
  allow int,                                 -- the most jobs that may go
  offer int,                                 -- of which so many are ranked
  bucket float8,                             -- the least tokens of its own throttles
  unfilled_bucket float8,                    -- the same of those that are not full
  goes_on boolean                            -- its batch takes only some of what could go
);

-- What a tick put in flight of one partition's jobs.
create type :DISPATCH_POLICY_SCHEMA._private_taking as (
  partition_id uuid,
  admitted int,
  first_job_id bigint,
  jobs int,                                  -- those of them that were not in flight before
  cost float8                                -- of these
);

-- How a failed job is tried again, as a worker process says it: `src/db/running.ts` has the same as a type.
create type :DISPATCH_POLICY_SCHEMA._private_move as (
  key text, shard text, context jsonb, weight float8, cost float8, limits jsonb
);
create type :DISPATCH_POLICY_SCHEMA._private_retry as (
  attempt int,                               -- the one that failed
  "giveUp" boolean,                          -- it fails for good
  native boolean,                            -- Graphile Worker retries it, at the policy's time
  "after" float8,                            -- seconds until it is due
  task text,
  priority smallint,
  "maxAttempts" smallint,
  "giveBack" boolean,                        -- the run was no attempt
  "jobKey" text,                             -- with "giveBack"
  move :DISPATCH_POLICY_SCHEMA._private_move -- to another partition
);

-- A job that has finished, as a worker process says it, see _release. `retries`: `retry` was given.
create type :DISPATCH_POLICY_SCHEMA._private_finished_job as (
  job bigint, admission bigint, ok boolean, lag_ms float8, duration_ms float8, attempt int, ends boolean,
  retries boolean, retry :DISPATCH_POLICY_SCHEMA._private_retry, ordinality bigint
);

-- What a limiter has left at a time, see _limiters_now.
create type :DISPATCH_POLICY_SCHEMA._private_limiter_now as (
  id bigint, gate text, kind text, breadth smallint, "position" smallint, scope_key text,
  rate float8, per float8, capacity float8, tokens float8, spent :DISPATCH_POLICY_SCHEMA._private_spending[],
  slots int, cap int, in_flight int, reserved_for uuid, reserved_until timestamptz, ending int,
  finished_per_second float8, measured float8, remembered float8
);

-- What a pass leaves of a limiter, see _left_after.
create type :DISPATCH_POLICY_SCHEMA._private_limiter_left as (
  now :DISPATCH_POLICY_SCHEMA._private_limiter_now,          -- before the pass
  jobs int,                                  -- that the pass put in flight under it
  slots_left int,
  tokens_left float8,
  spent_then :DISPATCH_POLICY_SCHEMA._private_spending[]
);

-- What a pass leaves of a claimed partition, see _leftovers. `head`: the next of its due jobs; null: it has none.
create type :DISPATCH_POLICY_SCHEMA._private_leftover as (
  partition_id uuid, limiter_ids bigint[], weight float8, due_at timestamptz, waiting_since timestamptz,
  decayed float8, admitted int,
  probe_job_id bigint,                       -- the probe that is out
  head_id bigint, head_priority smallint, head_run_at timestamptz, head_cost float8,
  head_chosen boolean,                       -- the pass chose it, and could not hand it over
  next_run_at timestamptz                    -- without a head: when the first of its other jobs is due
);

-- A limiter that has no room for a partition's next job, see _lacks.
create type :DISPATCH_POLICY_SCHEMA._private_lack as (
  partition_id uuid,
  ord int,                                   -- its place among the partition's limiters
  limiter_id bigint,                         -- null: it is not there
  breadth smallint, kind text, by_tokens boolean,
  ready_at timestamptz,                      -- when it may have room; null: nobody knows
  reason text
);

-- What a pass decides about a claimed partition, see _verdicts.
create type :DISPATCH_POLICY_SCHEMA._private_verdict as (
  leftover :DISPATCH_POLICY_SCHEMA._private_leftover,
  lack :DISPATCH_POLICY_SCHEMA._private_lack,                -- the first that it waits for; its fields are null: none
  reason text, denied_until timestamptz, blocked_on bigint
);

-- What adding a job from SQL returns.
create type :DISPATCH_POLICY_SCHEMA.added_job as (
  id bigint, staged boolean, task_identifier text, queue_name text, run_at timestamptz, max_attempts int, job_key text,
  priority int, flags text[], created_at timestamptz, policy text, partition text, shard text,
  dropped boolean   -- nothing was staged: the backlog is full, or (unsafe_dedupe) a job outside the policy has the key
);

-- A job as Graphile Worker's administration functions return it (DbJob there); a staged one has no queue or task number.
create type :DISPATCH_POLICY_SCHEMA.db_job as (
  id bigint, job_queue_id int, task_id int, payload json, priority int, run_at timestamptz, attempts int,
  max_attempts int, last_error text, created_at timestamptz, updated_at timestamptz, key text, revision int,
  locked_at timestamptz, locked_by text, flags jsonb, is_available boolean
);

-- What a staging call returns, one row per job: `n` is its place in the caller's input, `job` a passed-on job as
-- Graphile Worker returned it. A dropped job has no id.
create type :DISPATCH_POLICY_SCHEMA._private_staging as (
  n int, staged boolean, id bigint, task_identifier text, queue_name text, run_at timestamptz, max_attempts int,
  job_key text, priority int, flags text[], created_at timestamptz, policy text, partition text, shard text, job json
);
