-- What each table, column and type means: psql shows it with \d+ and \dn+. Views say it in their own files, and
-- functions in the header of theirs. docs/engine.md has the glossary, who writes each table, and all invariants.
--
-- Times are of the database's clock. '-infinity' is "not now or any more", 'infinity' is "at no time that comes".

do $$
declare
  v_schema record;
begin
  -- the schemas may belong to somebody else, who may have said something about them
  for v_schema in
    select s.name, s.meaning from (values
      (:'DISPATCH_POLICY_SCHEMA', 'graphile-worker-dispatch-policy: jobs wait here until their limits let them into Graphile Worker. Look through the views, change through the functions.'),
      (:'DISPATCH_POLICY_INTERNAL', 'graphile-worker-dispatch-policy: the tables and functions behind the other schema. They may change with each release.')
    ) s (name, meaning)
    join pg_namespace n on n.nspname = s.name
    where pg_has_role(n.nspowner, 'usage') and obj_description(n.oid, 'pg_namespace') is null
  loop
    execute format('comment on schema %I is %L', v_schema.name, v_schema.meaning);
  end loop;
end
$$;

comment on table migrations is
  'One row for each migration that was applied. Written when a process migrates.';
comment on column migrations.id is 'The number its file begins with.';
comment on column migrations.name is 'Its file in sql/migrations.';
comment on column migrations.at is 'When it was applied.';
comment on column migrations.routines_hash is
  'Of the last migration: a hash of the functions, views and comments that are in the schema. Null in older rows.';
comment on column migrations.routines_version is
  'Of the last migration: the version that put the functions and views in, as {major,minor,patch}. An older version leaves them alone.';

comment on table policies is
  'One row for each policy that a process has declared. _declare_policy makes it, _put_in_force writes it, pause, resume and switch_policy change it, remove_policy deletes it. A pass reads it once without a lock, so a pause or a switch takes effect in the next pass.';
comment on column policies.id is 'Number of the policy in other tables.';
comment on column policies.name is 'First argument of definePolicy.';
comment on column policies.version is
  'Option version of the definition in force.';
comment on column policies.definition is
  'The whole declaration: tasks, gates with their numbers, key paths, options.';
comment on column policies.definition_hash is
  'Hash of the definition. If it changes, the limits of all partitions are resolved anew.';
comment on column policies.generation is
  'How many other definitions were in force before. Limits that jobs of the one in force bring have this number, and count more than lower ones. Those of other versions have -1.';
comment on column policies.declared_at is
  'When the process that declared it started. At equal versions, while no worker has the policy, the latest process wins.';
comment on column policies.half_life is
  'Seconds after which a past admission counts half against a partition. Null: no fairness.';
comment on column policies.fair_by_work is
  'True: partitions share the seconds that jobs run. False: they share the number of jobs.';
comment on column policies.batch_size is
  'The most jobs of one partition in one pass (option admissionBatchSize).';
comment on column policies.admission_budget is
  'The most jobs of all partitions in one pass (option tickAdmissionBudget). Null: no budget.';
comment on column policies.ahead is
  'How many jobs may be in flight beyond the worker slots. Null: see ahead_seconds.';
comment on column policies.ahead_seconds is
  'For how many seconds the jobs in flight beyond the worker slots last at the workers'' pace. Null, with ahead null: no bound.';
comment on column policies.ahead_limiter_id is
  'The ahead bound''s row in limiters. Its in_flight counts all jobs of the policy.';
comment on column policies.retries is
  'restage: a failed job is parked and passes the gates again. bypass: Graphile Worker retries it by itself.';
comment on column policies.slot_timeout is
  'Seconds after which a sweep frees the slots of a job that still runs. Null: never.';
comment on column policies.breaker_failures is
  'So many failures of one partition within breaker_within put it on hold. Null: no breaker.';
comment on column policies.breaker_within is
  'Seconds within which the breaker counts failures, from the first of them.';
comment on column policies.breaker_cooldown is
  'Seconds for which the breaker holds a partition. Then one job goes as a probe.';
comment on column policies.max_pending is
  'The most staged jobs of one partition. Null: no bound.';
comment on column policies.max_pending_in_all is
  'The most staged jobs of the policy. Null: no bound.';
comment on column policies.when_full is
  'How a full backlog treats a further job: reject raises an error, drop_oldest and drop_newest drop a job.';
comment on column policies.strict_pending is
  'True: producers wait for each other, so that their uncommitted jobs count. False: they may exceed the bound together.';
comment on column policies.unique_for is
  'How many seconds a job key is remembered after its last job has completed. Null: it is not.';
comment on column policies.when_busy is
  'wait: jobs that the gates deny stay. skip: they are dropped. delay: they are delayed by busy_delay.';
comment on column policies.busy_delay is
  'By how many seconds a job is delayed that the gates deny, beside others up to twice that. Null: when_busy is not delay.';
comment on column policies.job_order is
  'Option order. strict: a job that has failed, or was quarantined, goes before all others of its partition, and they wait for it. deadline: the job with the earliest deadline goes first. Null: the usual order alone, by priority, run_at and id.';
comment on column policies.load_kept_for is
  'For how many seconds its load is kept; null: it is not recorded.';
comment on column policies.history_kept_for is
  'For how many seconds the history of its jobs is kept; null: it has none.';
comment on column policies.recorded is 'Whether all that happens to its jobs is recorded: generated.';
comment on column policies.watched is 'Whether somebody has to know how its jobs end: generated.';
comment on column policies.declared_enabled is
  'Option enabled, of the policy and of the preset.';
comment on column policies.operator_enabled is
  'What switch_policy, or utils.enable and utils.disable, set. Null: as declared.';
comment on column policies.per_worker is
  'Whether it has a gate with perWorker.';
comment on column policies.cancels_after is
  'Option whenRunning: how many seconds a run that has begun may last before a newer job of its key cancels it. Null: none does.';
comment on column policies.keyed_scopes is
  'Whether it has a gate over a key of its own, one with a cost, or classes, or had them: its partitions may have lanes.';
comment on column policies.by_cost is
  'Whether it has a gate with a cost, or had one: its jobs may take several slots of a limiter.';
comment on column policies.class_shares is
  'Option classShare: of each class from 1 on, the sum of its share and those of later ones. Null: none has a share.';
comment on column policies.shared is
  'Whether it is a shared limit: it has no tasks, and the gates of policies name it.';
comment on column policies.shared_ids is
  'The shared limits that a definition of it names, or has named.';
comment on column policies.enabled is
  'False: jobs are added past the policy, and ticks admit its staged jobs without gates.';
comment on column policies.paused_until is
  'End of the policy''s pause; -infinity: not paused. _admit checks it, and no partition changes. Operators alone set it.';
comment on column policies.paused_at is 'When it was paused last; null: it is not.';
comment on column policies.paused_by is 'Who paused it last.';
comment on column policies.pause_reason is 'Why they did.';
comment on column policies.paused_with_all is
  'Whether that was a pause of all policies.';
comment on column policies.unstaged_at is
  'When jobs of it were last unstaged. Whoever stages a job of a key compares it before and after.';
comment on column policies.crontab_ticked_at is
  'When the crontab''s tick last ticked it; -infinity: never.';

comment on column policies.ended_elsewhere is
  'How many of its jobs ended in workers without this package, so that looks had to free their slots.';
comment on column policies.ended_elsewhere_at is 'When the last of them was found; null: none was.';
comment on table definitions is
  'A definition of a policy that a process has declared: the one in force, and others. _declare_policy writes it, and deletes others that no worker pool has a day after their declaration. _put_in_force puts one in force.';
comment on column definitions.policy_id is 'Number of the policy.';
comment on column definitions.hash is 'Hash of the definition, by which worker pools name it.';
comment on column definitions.definition is 'The whole declaration.';
comment on column definitions.settings is
  'The settings that processes with this definition have declared, as _declare_policy takes them.';
comment on column definitions.in_force_at is 'When it came into force. Null: it is not in force.';
comment on column definitions.declared_at is
  'When the process named here declared it. Of the one in force: the process that put it in force. Of another one: the last.';
comment on column definitions.host is 'Name of that process''s machine. Null: not known.';
comment on column definitions.pid is 'Id of that process on the machine.';
comment on column definitions.resolves is
  'Of the one in force: whether limits are being worked out again by it, because another was in force before. It is set with that, and taken back with the last page. So what a killed process leaves is known.';
comment on column definitions.resolved_to is 'The partition up to which that is done; null: it has not begun.';
comment on table all_policies is
  'What concerns all policies, also those that are declared later: their pause, and what sweeps have repaired. One row.';
comment on column all_policies.one is 'True: there is one row.';
comment on column all_policies.paused_until is 'End of the pause of all; infinity: until resume; -infinity: they are not paused.';
comment on column all_policies.paused_at is 'When they were paused; null: they are not.';
comment on column all_policies.paused_by is 'Who paused them.';
comment on column all_policies.pause_reason is 'Why they did.';
comment on column all_policies.repaired is
  'What sweeps have repaired since the schema was made: a count by kind, as utils.sweep() names it.';
comment on table turns is
  'Rows to be locked, so that one session at a time does a step. Any user may take an advisory lock, and an operator''s open transaction locks a policy''s row: so there are these. Rows are made when a policy is declared. Nothing in them changes but busy.';
comment on column turns.policy_id is 'The policy; 0 for the step declare.';
comment on column turns.step is
  'route: one router. admit: one pass that keeps to the ahead bound. limits: one change of overrides, or of contexts. adopt: one session that adopts jobs. pending: one producer of a strict backlog. declare: one declaration, or one pause or resume of all policies.';
comment on column turns.place is
  'Of the step pending: 0 is the bound on the policy, the others are partitions by hash. Else 0.';
comment on column turns.busy is
  'Of the step admit: ids of limiters that passes found locked, and since when. Passes postpone the partitions that use them.';

comment on table policy_tasks is
  'One row for each task that a policy governs. _put_in_force writes it.';
comment on column policy_tasks.task_identifier is
  'Graphile Worker''s identifier of the task. It belongs to one policy at most.';
comment on column policy_tasks.policy_id is 'The policy that declared it last.';

comment on table limiters is
  'One row for each gate and scope key: its live numbers. A column is null if the kind of gate does not use it. A pass locks the rows that it decides by, by ascending id. It reads them in a later statement, because the statement that waited for a lock still has its old snapshot.';
comment on column limiters.id is 'Number of the limiter. Locks follow its order.';
comment on column limiters.policy_id is 'The policy that has the gate.';
comment on column limiters.gate is 'Name of the gate; ahead for the ahead bound.';
comment on column limiters.scope_key is
  'What it counts over: a partition''s key, a key of the gate''s scope, or an empty text for the whole policy.';
comment on column limiters.kind is
  'throttle, concurrency, adaptive_concurrency, or ahead: the bound that keeps jobs just ahead of the worker slots.';
comment on column limiters.breadth is
  'The scope as a number: 0 one partition, 1 a key of its own, 2 the policy, 3 the ahead bound.';
comment on column limiters.laned is
  'Whether it counts over one partition that has several lanes. Passes then treat it as one over a key of its own.';
comment on column limiters.shared is
  'Whether it is one of a shared limit, for which partitions of several policies may wait.';
comment on column limiters."position" is 'Place of the gate in the policy''s list, from 0.';
comment on column limiters.numbers is
  'The gate''s numbers as declared, without overrides. Null: the ahead bound has none.';
comment on column limiters.by_tokens is
  'True: a job spends tokens, which come back with time. False: it occupies a slot until its release.';
comment on column limiters.tokens is
  'Tokens that a bucket had at refilled_at. Negative after a job dearer than the bucket.';
comment on column limiters.refilled_at is
  'The time up to which the bucket was filled. It never moves back, because the same seconds would bring tokens twice.';
comment on column limiters.spent is
  'Of a window: what was spent, oldest first, at most 130 entries.';
comment on column limiters.longest is
  'Seconds of a longer window that this one was, or may be again. What it spent is remembered for as long.';
comment on column limiters.longest_until is 'Until when longest counts.';
comment on column limiters.in_flight is
  'Slots that are occupied. It equals how often in-flight rows name this limiter. If they differ, the limiter is over its cap, or a slot is lost. Changed under a lock on this row by admissions and releases; _sweep_counters repairs it. A throttle that was a cap under its name has those of that time until they end; any other throttle has 0.';
comment on column limiters.current_max is
  'Jobs at once that an adaptive gate has learnt to allow.';
comment on column limiters.lag_ewma_ms is
  'Milliseconds of lag of the jobs that finished lately, as a moving average.';
comment on column limiters.decreased_at is
  'When current_max last went down. Jobs admitted before do not lower it again.';
comment on column limiters.ending is
  'Of the ahead bound: ids of released jobs whose end Graphile Worker may still be recording. The bound counts them. Read without a lock.';
comment on column limiters.admitted is
  'Slots that were taken by admissions, a job at a time where it counts tokens. Every tenth place goes to the partition that has waited for longest.';
comment on column limiters.released is
  'Slots of this limiter that jobs freed since it was made.';
comment on column limiters.sampled_released is
  'Of the ahead bound: released, as it was at sampled_at.';
comment on column limiters.sampled_at is
  'Of the ahead bound: when finished_per_second was measured last.';
comment on column limiters.finished_per_second is
  'Of the ahead bound: jobs of the policy that finished in a second, as measured last.';
comment on column limiters.durations is
  'Of the ahead bound: how long the jobs of each task run, as a moving mean.';
comment on column limiters.long_waits_until is
  'Of the ahead bound: until then a job of a long task counts as waiting for a slot, and none is ahead.';
comment on column limiters.elsewhere_until is
  'Of the ahead bound: until then a pass counts the jobs that wait for a named queue or for flags, see _waiting_elsewhere.';
comment on column limiters.local_cap is
  'Of a gate with perWorker: how many jobs were in flight after a worker pool had requeued one. Null: none has. See _local_cap.';
comment on column limiters.local_until is
  'Until when no more than local_cap may be in flight. Then the cap rises.';
comment on column limiters.local_delay is
  'After how many seconds it rises each time.';
comment on column limiters.local_released is
  'What released was when a worker pool had requeued a job last.';
comment on column limiters.fewest_pools is
  'Of a gate with perWorker: the fewest worker pools that a denial went by, or that the last look went by. If more live now, passes look again. Null: nobody was denied yet.';
comment on column limiters.wake_at is
  'When passes look at those who wait for this limiter: at a shared throttle''s next token, a reservation''s end, or the rise of a lowered cap. Null: when a release or a change says so.';
comment on column limiters.reserved_for is
  'The partition for which slots are kept while it waits for another scope: as many as its next job takes.';
comment on column limiters.reserved_until is 'End of this reservation.';
comment on column limiters.arrival_id is
  'The arrival that the numbers come from. An earlier arrival of the same generation does not change them.';
comment on column limiters.version is 'The generation of the definition that the numbers come from; -1: it was not in force.';

comment on table partitions is
  'One row for each key of a policy: its times, limiters, next job and share. The router makes it and applies arrivals; _mark_partitions writes it in each pass; sweeps delete it if it is long unused.';
comment on column partitions.id is
  'A hash of policy and key, so that producers know it without a look-up.';
comment on column partitions.policy_id is 'The policy.';
comment on column partitions.key is 'What partitionBy gave. At most 1,024 bytes.';
comment on column partitions.shard is
  'What shardBy gave for its first job. Each shard has a tick loop of its own.';
comment on column partitions.context is
  'What the policy''s context gave for the last job. Limits are resolved anew from it after a new declaration.';
comment on column partitions.limits is
  'The gates with their numbers and scope keys, as resolved last.';
comment on column partitions.weight is 'Its share in relation to other partitions, times 2^-140 for each class, see names/classes.sql.';
comment on column partitions.min_cost is
  'Tokens of the cheapest job that was ever staged here. It bounds how many jobs a pass reads.';
comment on column partitions.limiter_ids is
  'Its limiters from narrow to broad, then by the gate''s position, the ahead bound last. One of which its jobs take several slots is there as often. In another order two partitions would take reservations crosswise, and wait for each other.';
comment on column partitions.arrival_id is
  'The arrival that context and limits come from. An earlier one of the same generation does not change them.';
comment on column partitions.limits_since is
  'Since when it has had these limits. What jobs in flight paid under others is not known, so they get nothing back.';
comment on column partitions.version is
  'The generation of the definition that context and limits come from; -1: it was not in force.';
comment on column partitions.due_at is
  'When its next job is due; infinity: it has no work. While due jobs stay it is a time that has come, or 50 ms ahead if the next job is locked. _mark_partitions alone raises it; routing and sweeps lower it. Too high, a partition with work sleeps.';
comment on column partitions.denied_until is
  'Until when its limiters or its probe deny it; -infinity: they do not. Only _mark_partitions, _postpone and _wait_in_order raise it. A function that has locked the partition may lower it. Too high, it sleeps although it could go.';
comment on column partitions.held_until is
  'End of a hold; -infinity: none. Set by operators and RetryAfter. Of two holds the later end counts. Then one job goes as a probe.';
comment on column partitions.breaker_until is
  'End of the breaker''s cooldown; -infinity: it is closed. Then one job goes as a probe.';
comment on column partitions.stopped_until is
  'When the last of its stops ends; -infinity: none.';
comment on column partitions.paused_until is
  'End of a pause; -infinity: none. Operators alone set it.';
comment on column partitions.eligible_at is
  'When a pass may claim it: the latest of due_at, denied_until and stopped_until.';
comment on column partitions.looked_at is
  'When routing or a pass looked at it last.';
comment on column partitions.ready is
  'It was eligible when somebody looked at it last. Passes claim those that are ready in fair order, by an index.';
comment on column partitions.blocked_on is
  'The limiter it waits for: the first one without room, narrow scopes first; of several buckets of its own, the one that is ready last. A waiter has work, and nothing stops it.';
comment on column partitions.denied_reason is
  'Why the last pass left it due jobs; null: it left none. A reason that a limiter gives is that of blocked_on. docs/operating.md explains the reasons.';
comment on column partitions.waiting_since is
  'Since when it has due jobs and none of them was admitted.';
comment on column partitions.in_line_since is
  'Since when only others stand before it. It counts while the partition is ready or waits for a limiter. After some seconds every tenth place goes by it. Null in later classes.';
comment on column partitions.goes_first is
  'It has been in line for longest, so its next job goes before others in its next pass.';
comment on column partitions.probing is
  'True after a hold: one job goes at a time, until one has succeeded.';
comment on column partitions.probe_job_id is
  'Graphile Worker''s id of the probe that is out.';
comment on column partitions.failures is
  'Failed jobs that the breaker counts since failures_since.';
comment on column partitions.failures_since is 'When the first of them failed.';
comment on column partitions.stopped_at is 'When somebody paused or held it, as stopped_by says.';
comment on column partitions.stopped_by is
  'Who paused or held it. Of two holds it is who set the one that ends later.';
comment on column partitions.stop_reason is 'Why they did.';
comment on column partitions.breaker_reason is 'What opened its breaker last.';
comment on column partitions.breaker_at is 'When that was.';
comment on column partitions.visited is
  'Number of the pass that looked at it last, from ticks. Of two partitions that are eligible since the same time, the lower number goes first.';
comment on column partitions.head_priority is
  'Head: the place (priority, run_at, id) from which a pass reads due jobs. It is a lower bound: not above the place of any due job whose arrival is routed. Set too high it starves jobs silently. Routing, _promote and sweeps only lower it; _mark_partitions sets it to the next job.';
comment on column partitions.head_run_at is
  'Second part of the head, see head_priority. By itself it bounds nothing: a due job of a later priority may have an earlier time.';
comment on column partitions.head_id is
  'Third part of the head, see head_priority. By itself it bounds nothing.';
comment on column partitions.head_cost is
  'Tokens of the next job, while it waits.';
comment on column partitions.decayed_admits is
  'What counts against its share as of decayed_at: admitted jobs, halved after each half-life. If fairness is by work: seconds they ran.';
comment on column partitions.mean_work is
  'Seconds that a job ran lately, on average. Null unless fairness is by work, and until the first job has ended.';
comment on column partitions.decayed_at is 'The time that decayed_admits is of.';
comment on column partitions.fair_key is
  'The virtual time of its next job, as of looked_at: what counts against its share, with that job, divided by its weight. The lowest is claimed and woken first. Without fairness: looked_at.';
comment on column partitions.admitted_total is 'Jobs admitted since the row was made.';
comment on column partitions.admitted_at is 'Last admission; -infinity: none yet.';
comment on column partitions.dropped_total is
  'Jobs dropped since the row was made, by maxPending, whenBusy or uniqueFor, or because they expired.';
comment on column partitions.staged is
  'Its staged jobs, but for what its arrivals add. Routing and passes keep it; nobody counts.';
comment on column partitions.created_at is 'When the row was made.';
comment on column partitions.laned is
  'Whether its partition has had several lanes. Each is a row with the same key; passes and verbs take them together.';

comment on sequence ticks is 'Numbers the passes; partitions keep it as visited.';
comment on sequence timeline is
  'The timeline of the server that was met last: see _meet_server. Not called: none yet.';
comment on sequence promoted_at is
  'When another timeline was met than before, in milliseconds since 1970. 0: never.';

comment on table staged_jobs is
  'One row for each job that waits for its gates. Graphile Worker does not know it yet, unless it is parked. A parked job has failed, and waits here for its retry. In Graphile Worker its run_at is infinity. A job is staged and in flight at once only between two flushes of a worker.';
comment on column staged_jobs.id is
  'From 10^15 on, or the id that an adopted job had in Graphile Worker: never the id of another job there, and exact in JavaScript.';
comment on column staged_jobs.partition_id is
  'Its partition. Null until a process that has the policy works out the key: see keyless_jobs.';
comment on column staged_jobs.task_identifier is 'Graphile Worker''s identifier of the task. The columns up to flags are Graphile Worker''s as well.';
comment on column staged_jobs.payload is 'As it was given.';
comment on column staged_jobs.queue_name is 'Graphile Worker''s queue; null: none.';
comment on column staged_jobs.run_at is 'When it is due.';
comment on column staged_jobs.run_at_given is
  'Whether the caller gave run_at. If not, Graphile Worker gets the time of admission.';
comment on column staged_jobs.max_attempts is 'Null: 25, Graphile Worker''s default.';
comment on column staged_jobs.job_key is
  'A new job of the same key replaces this one while it is staged.';
comment on column staged_jobs.preserve_run_at is
  'Job key mode preserve_run_at: at the admission a job of the key in Graphile Worker keeps its run_at.';
comment on column staged_jobs.priority is 'Lower goes first.';
comment on column staged_jobs.flags is
  'Graphile Worker''s flags, without the one that the admission adds.';
comment on column staged_jobs.cost is 'Tokens it takes from each throttle.';
comment on column staged_jobs.due is
  'Whether its time has come. Only due jobs are in the admission index. _promote sets it.';
comment on column staged_jobs.parked_job_id is
  'Of a parked job: its id in Graphile Worker.';
comment on column staged_jobs.parked_revision is
  'Of a parked job: revision of its row there. The next job of its key may get the row, with a later revision.';
comment on column staged_jobs.retry_at is
  'Of a job that is quarantined: when it is tried again.';
comment on column staged_jobs.failures is 'How many times it was quarantined.';
comment on column staged_jobs.error is 'Why it was quarantined last.';
comment on column staged_jobs.created_at is 'When it was staged.';
comment on column staged_jobs.known_job_id is
  'The job that Graphile Worker had under its key when it was staged. Any other one there was added later, and the newest job of a key counts.';
comment on column staged_jobs.known_revision is 'Revision of that job''s row then.';
comment on column staged_jobs.left_partition_id is
  'The partition that it had before the last job of its key, or its last retry, took its row.';
comment on column staged_jobs.droppable is
  'Whether its policy drops the oldest of all its jobs if there are too many. Only these are in the index by age.';
comment on column staged_jobs.traceparent is
  'Trace context of the span that added it, in W3C''s form; null: nobody traced that.';

comment on column staged_jobs.expires_at is
  'When it expires: from then on it is never admitted, and the next look drops it. Null: never. A job that has started once does not expire.';
comment on column staged_jobs.debounced_until is
  'The first debounced add of its key since an admission, and the longest wait: no add with debounce postpones the job beyond that. Null: no add was debounced.';
comment on column staged_jobs.sort_at is
  'Jobs that have one go before the others of their partition, by this time and id. If the policy goes by deadlines, it is the job''s deadline. -infinity: it has begun under strict order, and the others wait for it, also while it is not due. Null: the usual order. Policies without the option order do not read it.';
comment on column staged_jobs.waits_for is
  'Graphile Worker''s id of the older job of its key, which it has cancelled and whose end it waits for: until then it is not due, and retry_at is infinity. Null: none.';

comment on table arrivals is
  'Work for the router: something changed for one partition. A row is of one of five kinds: work, limits only, stop (pause), outcome, or "the next job may be another" (head_changed). Work may carry limits and head_changed too. Producers only insert, so none waits for another; the router applies a row and deletes it.';
comment on column arrivals.id is 'Order of insertion. The latest context and limits count.';
comment on column arrivals.policy is 'Name of the policy.';
comment on column arrivals.partition_id is 'The partition, which may not exist yet.';
comment on column arrivals.key is 'The partition''s key, to make its row with.';
comment on column arrivals.shard is 'Counts only for the first job of a partition.';
comment on column arrivals.version is
  'The generation of the definition that gave the limits; -1: that of its process was not in force. A lower one does not replace a higher one.';
comment on column arrivals.context is 'The partition''s new context; null: as it is.';
comment on column arrivals.weight is 'The partition''s new weight; null: as it is.';
comment on column arrivals.limits is 'The partition''s new limits; null: as they are.';
comment on column arrivals.due_at is
  'Of work: when the first of its jobs is due. infinity: no work.';
comment on column arrivals.head_priority is
  'Of work that is due: the place (priority, run_at, id) of its first job. After all others if none is due yet.';
comment on column arrivals.head_run_at is 'Second part of this place.';
comment on column arrivals.head_id is 'Third part of this place.';
comment on column arrivals.min_cost is 'Of work: tokens of its cheapest job.';
comment on column arrivals.pause is
  'A stop, which is a pause or a hold, of a partition that does not exist yet, as {until, held, at, by, reason}.';
comment on column arrivals.outcome is
  'Outcome: how jobs ended, if a breaker, a probe or fairness by work counts it.';
comment on column arrivals.jobs is
  'What it adds to the count of the partition''s staged jobs.';
comment on column arrivals.head_changed is
  'The partition''s next job may be another now: a job was removed or changed.';

comment on table keyless_jobs is
  'Jobs whose partition a process that has the policy works out, at its next tick: jobs staged from SQL whose key needs JavaScript, and jobs of a process that has another version than the one in force.';
comment on column keyless_jobs.staged_id is 'The staged job.';
comment on column keyless_jobs.policy is 'Name of the policy.';
comment on column keyless_jobs.partition_key is
  'The key, if the caller gave it. Then only the limits are to be worked out.';
comment on column keyless_jobs.retry_at is
  'When it is tried again after an error; -infinity: at once.';
comment on column keyless_jobs.failures is 'How many times it failed.';

comment on table in_flight_jobs is
  'One row for each admitted job that has not been released: who occupies which slots. A slot belongs to an admission and an attempt, because Graphile Worker reuses its row for the next job of a key. A release names both, and frees nothing for another one.';
comment on column in_flight_jobs.job_id is 'Graphile Worker''s id.';
comment on column in_flight_jobs.staged_id is 'The id it had in staging.';
comment on column in_flight_jobs.admission is
  'Owner of the slots: the time of the transaction that admitted the job or recorded its start, in microseconds since 1970.';
comment on column in_flight_jobs.revision is
  'Revision of Graphile Worker''s row. The next job of a key gets a later one.';
comment on column in_flight_jobs.policy_id is 'The policy.';
comment on column in_flight_jobs.partition_id is 'The partition.';
comment on column in_flight_jobs.limiter_ids is
  'Limiters in which it occupies a slot, each once for each slot, whatever the policy says today. The order means nothing. It names none that was a throttle at the admission, because nothing of a throttle comes back.';
comment on column in_flight_jobs.cost is 'Tokens it spent of each throttle.';
comment on column in_flight_jobs.paid is
  'What it has paid instead, if it was settled or came past its gates: by gate in gates, cost at all others. Its key at is when it first paid, if another job of its key was admitted in its row since. The key forced says that it was admitted past its gates. Null: its cost, when it was admitted.';
comment on column in_flight_jobs.work is
  'Seconds that its partition was charged for it. Null unless fairness is by work.';
comment on column in_flight_jobs.sort_at is
  'Its deadline, for its retry. Null: it has none, or its policy does not go by deadlines.';
comment on column in_flight_jobs.place is
  'Where it stood in staging, so that it stands there again if a worker pool requeues it. Null: its policy has no gate with perWorker, or it was admitted at its start.';
comment on column in_flight_jobs.admitted_at is 'When it was admitted.';
comment on column in_flight_jobs.attempt is
  'The attempt that owns the slots, since its start was recorded or a sweep unlocked the job. Null: the admitted one, whose start nobody recorded.';
comment on column in_flight_jobs.pool_id is
  'The worker pool in which that attempt runs, if its start was recorded. Null: a first attempt that a worker believed runs, or none does.';
comment on column in_flight_jobs.started_at is
  'When that attempt started. Null: about when it was fetched.';
comment on column in_flight_jobs.missing_since is
  'Since when a sweep finds that nobody will free the slots; -infinity: a verb said so. After a while a sweep does.';
comment on column in_flight_jobs.cancelled_at is
  'When an operator, or a newer job of its key, cancelled the job; null: nobody has. If the run fails, the job has failed for good, and it does not start again. The next job in the row is another one.';
comment on column in_flight_jobs.cancelled_by is 'Who cancelled it.';
comment on column in_flight_jobs.cancel_reason is 'Why; null: nobody said.';
comment on column in_flight_jobs.min_run is
  'If it was cancelled: seconds after its begin until which its run may go on. Null: it is told to end at once.';
comment on column in_flight_jobs.lent_until is
  'Its pool runs it without having it locked in Graphile Worker, see _give_up_locks: until then nobody takes its slot for lost. Null: it has it locked.';

comment on table superseded_jobs is
  'Jobs of Graphile Worker in whose place another one runs. Either a copy was staged, because they came past their policy or were requeued: if a process is killed before the original completes, the row prevents a second copy. Or they were parked, and lost their place to a newer job of their key: that job gets their row; if it leaves staging without an admission, _sweep_replaced fails them for good.';
comment on column superseded_jobs.job_id is 'Graphile Worker''s id.';
comment on column superseded_jobs.revision is
  'The revision in which the job was copied: the next job of its key in the same row is another one. Null: it was parked, and a newer job of its key replaced it.';
comment on column superseded_jobs.staged_id is 'The copy in staging.';
comment on column superseded_jobs.was_parked is
  'Whether it was parked, and a newer job of its key replaced it. One job may be both: the copy was made while its staged row was locked.';

comment on table pending is
  'Changes of the number of staged jobs, for policies that bound their whole backlog. The sum is the backlog; the router adds the rows up.';
comment on column pending.id is 'Order of insertion.';
comment on column pending.policy is 'Name of the policy.';
comment on column pending.jobs is 'Jobs that came; negative: jobs that left staging.';

comment on table unique_keys is
  'Job keys of policies with uniqueFor. One producer at a time has a key''s row locked, and decides whether its job is dropped.';
comment on column unique_keys.policy_id is 'The policy.';
comment on column unique_keys.job_key is 'The key.';
comment on column unique_keys.staged_id is
  'The last job of the key. Null: none was staged.';
comment on column unique_keys.ended_at is
  'When that job completed, as far as its event was read. Null: it has not, or an event says so.';
comment on column unique_keys.look_at is
  'When a sweep looks whether the row is still needed.';

comment on table events is
  'What happened to jobs and partitions of policies that somebody watches, and which jobs were dropped. Whoever ticks or sweeps reads the rows, applies them, and deletes them.';
comment on column events.id is 'Order of insertion. What concerns one job is in order, unless it moves to another policy.';
comment on column events.policy_id is 'The policy.';
comment on column events.at is 'When it happened.';
comment on column events.kind is
  'admitted, left (staging, without an admission), ended (a release), completed (a success without a slot, or one whose key is locked), moved (it goes on under another id), waits (what a pass decided about partitions), stopped, came (how many jobs a partition got), dropped (how many it lost), elsewhere (how many ended in workers without this package).';
comment on column events.staged_id is 'The job, by its staged id; null: of no single job, or not known.';
comment on column events.job_id is 'The job, by Graphile Worker''s id; null: as above.';
comment on column events.partition_id is 'The partition; null: none, or all of the policy.';
comment on column events.facts is
  'What else there is to say, by kind: see sql/functions/names/events.sql.';

comment on table freed is
  'Freed rows: this limiter may have room. A row stays until its limiter is full, nobody waits for it, or its wake_at is set. Otherwise room would be left, and nobody would look. The function _look_again deletes it.';
comment on column freed.id is 'Order of insertion.';
comment on column freed.policy_id is
  'The policy whose pass looks at it: that of a waiter, or the shared limit.';
comment on column freed.limiter_id is 'The limiter.';
comment on column freed.at is
  'When it was inserted. A policy that leaves one of a shared limiter for a second loses its places there.';

comment on table overrides is
  'An operator''s temporary numbers for a gate. If several are in force, the last one counts. A row stays for a day after its end, because a bucket that nobody has looked at since gained by it. Read without a lock; the router looks again after a change.';
comment on column overrides.id is 'Order in which they were set.';
comment on column overrides.policy_id is 'The policy.';
comment on column overrides.gate is 'Name of the gate.';
comment on column overrides.scope_key is 'The scope key; null: every key of the gate, or those of a context.';
comment on column overrides.context is
  'The values in the context of the partitions that it applies to; null: it does not go by context. Only gates over the partition have such.';
comment on column overrides.context_pair is
  'The first of these values with its name. A look-up by the pairs of a context finds the override by it.';
comment on column overrides.announced_to is
  'The scope key up to which the router has announced it, if it concerns many keys and the router is under way; else null.';
comment on column overrides.set is
  'The numbers, by option: rate, per (seconds), burst, max and so on.';
comment on column overrides.from_at is 'Start; -infinity: when it was set.';
comment on column overrides.until_at is 'End; infinity: until it is cleared.';
comment on column overrides.set_at is 'When it was set.';
comment on column overrides.taken_back is
  'Whether it was cleared or replaced at until_at. Then it is over, whatever time a tick goes by.';
comment on column overrides.announce_at is
  'When the router next inserts freed rows for it: at its start and its end.';
comment on column overrides.announce_again_at is
  'When the router does so once more, because a tick ahead of the database''s clock did it too early; infinity: never.';
comment on column overrides.to_announce is
  'Limiters that were locked at that time. The router inserts their freed rows later.';
comment on column overrides.set_by is 'Who set it.';
comment on column overrides.reason is 'Why they did.';
comment on column overrides.is_hold is
  'Whether it is a hold of the key: a rate or max of 0, above the other limits of the key. These count again at its end.';

comment on table workers is
  'One row for each Graphile Worker pool with the preset: its worker slots and heartbeat. Read without a lock.';
comment on column workers.pool_id is 'Graphile Worker''s id of the pool.';
comment on column workers.slots is 'Jobs it runs at once, at most. They raise the ahead bound.';
comment on column workers.tasks is 'Identifiers of the tasks it runs.';
comment on column workers.host is 'Name of its machine.';
comment on column workers.pid is 'Id of its process on that machine.';
comment on column workers.started_at is 'Its first heartbeat.';
comment on column workers.heartbeat_at is 'Its last heartbeat.';
comment on column workers.stale_after is 'Its setting workerStaleAfter.';
comment on column workers.stale_at is
  'If no heartbeat comes before this time, the pool counts as dead.';
comment on column workers.buried_at is
  'When a sweep found it dead and unlocked its jobs. The row is kept for a week, for jobs that it may fetch if it lives.';
comment on column workers.unlocked is
  'How many jobs sweeps have unlocked because the pool that had them locked was silent: others run them again.';
comment on column workers.used_up is
  'How many jobs were unlocked in that way in their last attempt. They have failed for good.';
comment on column workers.ended is
  'True: it ended by itself. The row is kept for ten minutes, for a fetch that was on its way.';
comment on column workers.clock_behind is
  'How far the clock by which it fetches jobs is behind the database''s. 0 unless it runs under useNodeTime.';
comment on column workers.definitions is
  'The policies that its process has declared: name to version and hash of the definition.';
comment on column workers.unbroken_since is
  'Since when no heartbeat came late. Only a pool with unbroken heartbeats may find others dead. A slot_timeout counts from it.';
comment on column workers.pooled is
  'True: at its start it was connected through a pooler in transaction mode, which no notification passes.';
comment on column workers.server is
  'The server for which it has said what it runs, see _server_now.';

comment on table leases is
  'One row for each shard: which worker pool runs its tick loop. A lease only saves work, because several ticks at once are correct.';
comment on column leases.policy is 'Name of the policy.';
comment on column leases.shard is 'The shard.';
comment on column leases.holder is 'Who leads, or led last.';
comment on column leases.expires_at is 'Until when, if it is not renewed.';

comment on table audit is
  'One row for each operator''s verb that was called. Rows are never changed. Sweeps delete those older than `keepAuditFor`.';
comment on column audit.id is 'Order of the calls.';
comment on column audit.at is 'When.';
comment on column audit.verb is 'Which verb: pause, resume, hold, set_limit and so on.';
comment on column audit.policy is 'Of which policy; null: of all, or of a job.';
comment on column audit.partition is 'Key of the partition; null: not of one partition.';
comment on column audit.gate is 'Name of the gate, if it was about one.';
comment on column audit.scope_key is 'Scope key of the gate; null: all keys.';
comment on column audit.detail is 'What else was asked for.';
comment on column audit.reason is 'Why, as the caller says.';
comment on column audit.by is 'Who, as the caller says; else the session''s user.';
comment on column audit.matched is 'How many things it was meant for.';
comment on column audit.changed is 'How many of them it changed.';
comment on column audit.form is 'Which form of the admin pages it came from, its step and call; null: from none. The same form, sent again, does nothing.';

-- Composite types. Arrays of them pass between the steps of a transaction.

comment on type gate_numbers is
  'The numbers of a gate as its policy''s definition gives them: all that distinguishes two gates of one kind. This is their one list; routing, overrides and comparisons take the numbers as a whole.';
comment on column gate_numbers.rate is 'Throttle: tokens that come in per seconds.';
comment on column gate_numbers.per is 'Throttle: seconds in which rate tokens come.';
comment on column gate_numbers.burst is
  'Throttle: the tokens of a full bucket; null: rate. A full bucket never has less than one.';
comment on column gate_numbers.smooth is
  'Throttle: a bucket of one token that makes up for passes that come late.';
comment on column gate_numbers.sliding is
  'Throttle: no bucket. In any per seconds rate tokens at most, or one if rate is less.';
comment on column gate_numbers.calendar is
  'Throttle: no bucket. In each minute, hour, day, week or month of a time zone rate tokens at most. The unit and the zone, such as "day America/New_York". per is about its length.';
comment on column gate_numbers.max is
  'Concurrency: jobs at once. Adaptive concurrency: upper bound of what it learns.';
comment on column gate_numbers.initial_max is 'Adaptive concurrency: jobs at once to begin with.';
comment on column gate_numbers.min is 'Adaptive concurrency: lower bound of what it learns.';
comment on column gate_numbers.target_lag_ms is
  'Adaptive concurrency: milliseconds of lag above which the limit decreases.';
comment on column gate_numbers.ewma_alpha is
  'Adaptive concurrency: share of a new lag in the moving average, 0 to 1.';
comment on column gate_numbers.failure_decrease_factor is
  'Adaptive concurrency: a failure multiplies the limit by it.';
comment on column gate_numbers.overload_decrease_factor is
  'Adaptive concurrency: a lag above the target multiplies the limit by it.';
comment on column gate_numbers.per_worker is
  'Concurrency: true: max is the share of each worker pool. Else null.';
comment on column gate_numbers.shadow is
  'True: the gate decides and counts, and holds nothing back. Else null.';

comment on type task_duration is 'How long a task''s jobs run: the mean of about the last fifty, in seconds.';
comment on column task_duration.task is 'Graphile Worker''s identifier of the task.';
comment on column task_duration.seconds is 'The mean, in seconds.';
comment on type spending is 'What a window remembers: tokens that were spent.';
comment on column spending.at is 'When the last of these tokens were spent.';
comment on column spending.cost is 'How many tokens.';
comment on table activity is
  'What passes, the router and releases have done, one row for each time. They append it, and sweeps fold it into minutes.';
comment on column activity.id is 'Order of the rows.';
comment on column activity.policy_id is 'Number of the policy.';
comment on column activity.at is 'When it happened.';
comment on column activity.passes is '1 for a pass that claimed a partition.';
comment on column activity.pass_seconds is
  'How long the pass took, as far as its step that admits.';
comment on column activity.staged is
  'Jobs that came into staging, as the router found them, or one that went at once.';
comment on column activity.admitted is 'Jobs that were admitted.';
comment on column activity.denied is 'How many partitions kept due jobs, by reason.';
comment on column activity.left_to_pass is
  'How often the small way of admission left jobs to a pass, by reason. See _admit_few.';
comment on column activity.shadow_denied is
  'Jobs that went although a shadow gate had no room, by gate.';
comment on column activity.quarantined is 'Jobs that were quarantined.';
comment on column activity.dropped is 'Jobs that were dropped.';
comment on column activity.expired is 'Of these, jobs that expired.';
comment on column activity.delayed is 'How many times a job was delayed (whenBusy).';
comment on column activity.succeeded is 'Runs that succeeded and were released.';
comment on column activity.failed is 'Runs that failed and were released.';
comment on column activity.waits is
  'Of each admitted job: seconds from when it was due to its admission.';
comment on column activity.lags is
  'Of each released run whose lag is known: seconds from its admission to its start.';
comment on column activity.runs is
  'Of each released run whose duration is known: seconds.';
comment on column activity.caps is
  'Caps of adaptive limiters that changed: a list of { gate, key, cap }.';
comment on table minutes is
  'What each policy did in each minute, and in all: the row of the minute -infinity. Sweeps write it from activity, and delete rows of minutes older than metricsRetention.';
comment on column minutes.policy_id is 'Number of the policy.';
comment on column minutes.minute is 'When the minute began; -infinity: the totals.';
comment on column minutes.passes is 'Passes that claimed a partition.';
comment on column minutes.pass_seconds is 'How long these took together.';
comment on column minutes.last_pass_at is 'When the last of these passes was; null: there was none.';
comment on column minutes.staged is 'Jobs that were added, and retries.';
comment on column minutes.admitted is 'Jobs that were admitted.';
comment on column minutes.denied is
  'How many partitions kept due jobs after a pass, by reason, summed over the passes.';
comment on column minutes.left_to_pass is
  'How often the small way of admission left jobs to a pass, by reason. See _admit_few.';
comment on column minutes.shadow_denied is
  'Jobs that went although a shadow gate had no room, by gate.';
comment on column minutes.quarantined is 'Jobs that were quarantined.';
comment on column minutes.dropped is 'Jobs that were dropped.';
comment on column minutes.expired is 'Of these, jobs that expired.';
comment on column minutes.delayed is 'How many times a job was delayed (whenBusy).';
comment on column minutes.succeeded is 'Runs that succeeded and were released.';
comment on column minutes.failed is 'Runs that failed and were released.';
comment on column minutes.waits is
  'How many admitted jobs had waited for how long, by bucket (see _bucket). Empty: none.';
comment on column minutes.wait_seconds is 'How long they had waited together.';
comment on column minutes.wait_max is 'The longest of these waits, and no quantile is above it; null: none.';
comment on column minutes.lags is
  'How many runs had started how long after their admission, by bucket. Empty: none.';
comment on column minutes.lag_seconds is 'These times together.';
comment on column minutes.lag_max is 'The longest of them; null: none.';
comment on column minutes.runs is
  'How many runs took how long, by bucket. Empty: none.';
comment on column minutes.run_seconds is 'These times together.';
comment on column minutes.run_max is 'The longest of them; null: none.';
comment on column minutes.caps is
  'Caps of adaptive limiters that changed in the minute: a list of { gate, key, lowest, last }, of at most ten limiters.';
comment on table load is
  'What came to a partition in a minute, of policies with the option load: diff replays it. The first hundred partitions of a minute have rows of their own. A row of the zero uuid has all others.';
comment on column load.policy_id is 'Number of the policy.';
comment on column load.minute is 'When the minute began.';
comment on column load.partition_id is 'The partition; the zero uuid: all others.';
comment on column load.seconds is
  'The seconds of the minute in which jobs came, from 0. A second may be there several times.';
comment on column load.came is 'How many jobs came in each of these.';
comment on column load.cost is 'Tokens that they take together.';
comment on column load.admitted is 'Jobs that were admitted.';
comment on column load.ended is 'Runs that ended and whose duration is known.';
comment on column load.run_seconds is 'How long these took together.';
comment on table history is
  'What happened to a job, of policies with the option history. The row is written at its first admission, or when it leaves staging without one. Its end completes the row.';
comment on column history.staged_id is
  'The id it had in staging; of a job that was added past its policy the id in its ticket, or Graphile Worker''s.';
comment on column history.policy_id is
  'Number of the policy.';
comment on column history.partition is
  'Key of the partition; null: never worked out.';
comment on column history.task_identifier is
  'Its task.';
comment on column history.job_key is
  'Its job key.';
comment on column history.job_id is
  'Graphile Worker''s id; null: it was never admitted.';
comment on column history.added_at is
  'When it was added; null: not known, because it came past its policy or before the option.';
comment on column history.due_at is
  'From when it might go; null as added_at.';
comment on column history.admitted_at is
  'When it was admitted first; null: never.';
comment on column history.last_admitted_at is
  'When it was admitted last: after a failure it passes its gates again.';
comment on column history.started_at is
  'When its last attempt started; null: not known.';
comment on column history.ended_at is
  'When it ended for good; null: it has not.';
comment on column history.outcome is
  'How it ended; null: it has not.';
comment on column history.attempts is
  'How many times it was started.';
comment on column history.error is
  'First line of its last error, if it failed for good.';
comment on column history.waited is
  'Seconds that it waited before its admissions, by reason; in_line: nothing held its partition back. The name of the gate follows, as in throttle_empty:account. See _waited_by.';
comment on column history.failed_attempts is
  'Its attempts that failed, at most the last ten: when each started and ended, and the first line of its error.';
comment on column history.trace_id is
  'The trace in which it was added. Null: none is known.';
comment on table waits is
  'From when a partition waited for which reason, and when it or its policy was stopped, of policies with the option history.';
comment on column waits.id is 'Order of insertion.';
comment on column waits.policy_id is 'Number of the policy.';
comment on column waits.partition_id is 'The partition; the zero uuid: the whole policy.';
comment on column waits.reason is
  'Why the partition kept due jobs; null: it kept none, or only for others. Of a stop paused, held or breaker_open.';
comment on column waits.from_at is 'When a pass decided so, or when the stop began.';
comment on column waits.until_at is
  'The stop''s end, which may be ahead; infinity: until resume. Null: a reason, which ends with the next one.';
comment on column waits.waited is
  'Of a reason: seconds by reason until then, since the partition''s first one, without stops. The difference of two moments is what lies between them. Null: a stop.';
comment on type place is
  'The place that an admitted job had in staging.';
comment on column place.staged_id is
  'Its id.';
comment on column place.run_at is
  'When it was due.';
comment on column place.run_at_given is
  'Whether the caller gave that time.';
comment on column place.added_at is
  'When it was staged.';
comment on column place.expires_at is
  'From when on it must not be admitted.';
comment on table groups is
  'A job group that is open: jobs that were added in one call, and the callback that is added when all have ended for good.';
comment on column groups.id is 'Its number. The callback''s payload has it.';
comment on column groups.callback is
  'The callback as json: identifier, payload, queueName, runAt or wait (seconds), maxAttempts, jobKey, priority, flags, expiresAt or expiresAfter (seconds) and traceparent.';
comment on column groups.created_at is 'When its jobs were added.';
comment on column groups.total is 'How many jobs the call had.';
comment on column groups.succeeded is 'How many have succeeded.';
comment on column groups.failed is 'How many have failed for good.';
comment on column groups.removed is 'How many an operator removed before they ran.';
comment on column groups.dropped is
  'How many were dropped: expired, denied by busy gates, or without room in a full backlog. Or a job with their key kept them out.';
comment on column groups.replaced is 'How many lost their place to a newer job of their key.';
comment on column groups.gone is 'How many ended where nobody saw how.';
comment on column groups.jobs_left is
  'How many have not ended, or their end is not added up yet.';
comment on column groups.error is
  'Why the callback could not be added; the next sweep tries again. Null: it was not tried.';
comment on table group_jobs is 'A job of an open group that has not ended for good.';
comment on column group_jobs.staged_id is
  'The id that the job has in staging. Of a job that Graphile Worker has past its policy, that one''s id.';
comment on column group_jobs.group_id is 'Its group.';
comment on column group_jobs.job_id is
  'Graphile Worker''s id, once the job has left its slot without an end, or if it is there past its policy; null: not known.';
comment on type candidate is
  'A due job of a claimed partition, and whether the pass chose it. Candidates are read without a lock, so _add_admitted compares ct and staged_id under one.';
comment on column candidate.vt is 'Its virtual time.';
comment on column candidate.overtakes is
  'Whether it starts before the jobs ahead: it is the first of a partition of which none was admitted for a second.';
comment on column candidate.ct is
  'Where its row in staged_jobs was when it was read (ctid).';
comment on column candidate.staged_id is 'Its id in staging.';
comment on column candidate.partition_id is 'Its partition.';
comment on column candidate.pos is
  'Its place among the partition''s due jobs, from 1.';
comment on column candidate.priority is 'Its priority; lower goes first.';
comment on column candidate.run_at is 'When it was due, by which it has its place; of one that goes before others, its sort_at.';
comment on column candidate.cost is 'Tokens it takes from each throttle.';
comment on column candidate.chosen is 'Whether the pass chose it.';
comment on column candidate.is_plain is
  'Whether it has neither a job key nor a row in Graphile Worker.';
comment on column candidate.due_at is
  'From when it waits: when it was due, or when it was added if that was later.';
comment on type admission is
  'What became of a chosen job, see _add_admitted.';
comment on column admission.job_id is
  'Graphile Worker''s id. Of a job that was not admitted: of the row in which it was parked. Null: it was not parked.';
comment on column admission.staged_id is 'The id it had in staging.';
comment on column admission.admitted is
  'True: it is in Graphile Worker. False: a newer job of its key goes instead, or its parked job is gone.';
comment on column admission.counted is
  'True: it may be in flight already, under the same job key.';
comment on column admission.revision is 'Revision of Graphile Worker''s row. Of a job that was not admitted: in which it was parked.';
comment on column admission.waits_elsewhere is
  'True: it, or a job that went with it, may wait there for a named queue or for a worker that takes its flags.';
comment on column admission.anew is
  'True: it pays its tokens even if its row is in flight. What was admitted there before may have run.';
comment on type known is 'A partition that exists, as the steps of routing read it.';
comment on column known.id is 'The partition.';
comment on column known.limits is 'Its limits, as its newest arrival had them.';
comment on column known.arrival_id is 'The arrival whose context and limits count.';
comment on column known.version is 'The generation of the definition that gave them.';
comment on column known.weight is 'Its share is in proportion to this.';
comment on column known.head_priority is 'First part of the place of its next job.';
comment on column known.head_run_at is 'Second part of this place.';
comment on column known.head_id is 'Third part of this place.';
comment on column known.due_at is 'When its first job is due; infinity: no work.';
comment on column known.ready is 'Whether it was eligible when somebody looked at it last.';
comment on column known.blocked_on is 'The limiter that it waits for; null: none.';
comment on column known.denied_until is 'When it is looked at again if nobody wakes it.';
comment on column known.denied_reason is 'Why due jobs stay.';
comment on column known.decayed is 'What counts against its share now.';
comment on type claimed is 'A claimed partition, as the steps of a pass read it.';
comment on column claimed.id is 'The partition.';
comment on column claimed.shard is 'Its shard.';
comment on column claimed.staged is 'How many jobs it has in staging, due or not.';
comment on column claimed.limiter_ids is 'Ids of its limiters, the narrow ones first.';
comment on column claimed.weight is 'Its share is in proportion to this.';
comment on column claimed.min_cost is 'Tokens of its cheapest job.';
comment on column claimed.due_at is 'When its first job is due; infinity: no work.';
comment on column claimed.waiting_since is 'Since when it has had due jobs and none was admitted.';
comment on column claimed.decayed_admits is 'What counts against its share, as of decayed_at.';
comment on column claimed.decayed_at is 'The time that decayed_admits is for.';
comment on column claimed.mean_work is 'How many seconds its jobs ran lately, on average; null: not known.';
comment on column claimed.admitted_at is 'When a job of it was admitted last.';
comment on column claimed.first_jobs is 'How many of its jobs go before all others.';
comment on column claimed.probing is 'Whether one job at a time goes, to find out whether it passes.';
comment on column claimed.probe_job_id is 'The job that does; null: none is in flight.';
comment on column claimed.head_priority is 'First part of the place of its next job.';
comment on column claimed.head_run_at is 'Second part of this place.';
comment on column claimed.head_id is 'Third part of this place.';
comment on column claimed.key is 'Its key, if its partition has several lanes; null: it has one.';
comment on column claimed.lane is 'The place among those of its lanes of its class that were claimed, by their next jobs.';
comment on column claimed.lanes is 'How many of them were claimed.';
comment on type move is 'Another partition that a failed job moves to. The same type stands in src/db/releasing.ts.';
comment on column move.key is 'Key of the partition that the job moves to.';
comment on column move.lane is 'The class of the job and the keys of its own that it names there, see _lane_of; null: neither.';
comment on column move.shard is 'Its shard. It counts only if the partition is new.';
comment on column move.context is
  'What the policy''s context gave for the job. It counts only if the partition is new.';
comment on column move.weight is
  'Weight of the partition. It counts only if the partition is new.';
comment on column move.cost is 'Tokens that the job takes there from each throttle.';
comment on column move.limits is
  'Limits of the partition, as resolved. They count only if the partition is new.';
comment on type retry is
  'How a worker process says that a failed job is tried again, see _release. The same type stands in src/db/releasing.ts.';
comment on column retry.attempt is 'The attempt that failed.';
comment on column retry.revision is 'The revision that its row had; null: whichever it has.';
comment on column retry."giveUp" is 'True: it fails for good.';
comment on column retry.native is 'True: Graphile Worker retries it, at the policy''s time.';
comment on column retry."after" is 'Seconds until it is due.';
comment on column retry.refund is 'True: the run was no attempt.';
comment on column retry."jobKey" is 'Given with refund.';
comment on column retry.move is 'The partition it moves to; null: it stays.';
comment on column retry.task is 'Graphile Worker''s identifier of the task.';
comment on column retry.priority is
  'Priority of the retry; null: 0. Lower goes first.';
comment on column retry."maxAttempts" is 'After so many attempts it fails for good.';
comment on type finished_job is
  'How a worker process says that a job has finished, see _release.';
comment on column finished_job.admission is 'Owner of the slots, see in_flight_jobs.';
comment on column finished_job.ok is 'Null: nobody saw how it ended, and it counts as neither.';
comment on column finished_job.ends is 'Graphile Worker is recording its end just now.';
comment on column finished_job.retries is 'Whether retry was given.';
comment on column finished_job.job is 'Graphile Worker''s id.';
comment on column finished_job.task is 'Graphile Worker''s identifier of the task.';
comment on column finished_job.lag_ms is
  'Milliseconds from when it could have started to its start; null: not known.';
comment on column finished_job.duration_ms is
  'Milliseconds that it ran; null: not known.';
comment on column finished_job.attempt is
  'The attempt that ended; null: whichever occupies the slots.';
comment on column finished_job.retry is 'How it is tried again; null: it is not.';
comment on column finished_job.ordinality is 'Its place in the release, from 1.';
comment on column finished_job.error is
  'First line of its error, if it failed for good and its policy has a history.';
comment on column finished_job.settled is
  'What its run cost: by gate in gates, cost at all others. Null: nobody said.';
comment on column finished_job.staged_id is
  'Its id in staging, if it succeeded and uniqueFor remembers its key.';
comment on column finished_job.says_nothing is
  'It failed, and that says nothing of the partner: no breaker, adaptive limit or probe counts it.';
comment on type settlement is
  'What a job still has to pay at a throttle, see _settle.';
comment on column settlement.job_id is 'Graphile Worker''s id.';
comment on column settlement.policy_id is 'The policy.';
comment on column settlement.limiter_id is 'The throttle.';
comment on column settlement.difference is 'In tokens; below 0: it gets them back.';
comment on column settlement.since is 'When it paid.';
comment on column settlement.paid is 'What it has paid then, see in_flight_jobs.';
comment on type room_before is
  'What a limiter has left at a time, see _rooms_of. Read under a lock on the limiter, in a later statement than the lock, unless it is only shown.';
comment on column room_before.id is 'Number of the limiter.';
comment on column room_before.gate is 'Name of the gate; ahead for the ahead bound.';
comment on column room_before.kind is
  'throttle, concurrency, adaptive_concurrency or ahead.';
comment on column room_before.breadth is
  'The scope as a number: 0 one partition, 1 a key of its own, 2 the policy, 3 the ahead bound.';
comment on column room_before."position" is
  'Place of the gate in the policy''s list, from 0.';
comment on column room_before.scope_key is
  'What it counts over, see limiters.scope_key.';
comment on column room_before.rate is
  'Throttle: tokens that come in per seconds, with overrides. 0: nothing goes. Else null.';
comment on column room_before.per is
  'Throttle: seconds in which rate tokens come. Sliding window: its length in seconds. Calendar window: about that. Else null.';
comment on column room_before.capacity is
  'Throttle: tokens that it has when it is full. Else null.';
comment on column room_before.tokens is
  'Throttle: tokens that it has. Negative after a job dearer than that. Else null.';
comment on column room_before.spent is
  'Window: what was spent, oldest first. Else null.';
comment on column room_before.slots is
  'Cap: how many slots are left. Without a bound: 2147483647. Throttle: null.';
comment on column room_before.cap is
  'Cap: how many jobs may be in flight at once, with overrides. Null: throttle, or no bound.';
comment on column room_before.in_flight is
  'Slots that are occupied. Of a throttle: those from when it was a cap under its name; else 0.';
comment on column room_before.reserved_for is
  'The partition for which slots are reserved, if it still waits; null: none.';
comment on column room_before.reserved is
  'How many slots are reserved, if there is a reservation.';
comment on column room_before.reserved_until is
  'End of the reservation, also of one that counts no more.';
comment on column room_before.ending is
  'Ahead bound: released jobs that Graphile Worker still has. Else 0.';
comment on column room_before.measured is
  'Ahead bound: jobs that finished in a second, if it is time to measure anew. Else null.';
comment on column room_before.calendar is
  'Calendar window: its unit and time zone. Else null.';
comment on column room_before.window_seconds is
  'Window: of how many seconds until now it counts what was spent. Else null.';
comment on column room_before.remembered is
  'Window: for how many seconds it must know what was spent. Else null.';
comment on column room_before.admitted is
  'As in limiters.';
comment on column room_before.shadow_tokens is
  'Throttle of a shadow gate: the tokens that it has, while tokens is null and slots has no bound. Else null.';
comment on column room_before.shadow_slots is
  'Cap of a shadow gate: the slots that it has, while slots has no bound. Else null.';
comment on column room_before.share is
  'Of a gate with perWorker: how many jobs each worker pool may run at once. Else null.';
comment on column room_before.pools is
  'Of a gate with perWorker: how many worker pools its cap goes by. Else null.';
comment on column room_before.rises_at is
  'When its cap rises that holds because a worker pool has requeued a job, or places that are kept for others are looked at again. Null: none.';
comment on column room_before.kept is
  'Of a shared limit: the slots or tokens that others are to have, and that are left out above. Null: none.';
comment on type room_after is 'What a pass leaves of a limiter.';
comment on column room_after.before is 'What it had before the pass.';
comment on column room_after.jobs is 'Slots that the pass took, or jobs if it counts tokens.';
comment on column room_after.slots is 'Its slots; null: it counts tokens.';
comment on column room_after.tokens is 'Its tokens, also of a shadow gate; null: it counts jobs.';
comment on column room_after.spent is 'Of a window: what it remembers; else null.';
comment on type verdict is
  'What a pass decides about a claimed partition, see _charge: what it leaves of it, and the first limiter that its next job waits for.';
comment on column verdict.partition_id is 'The partition.';
comment on column verdict.limiter_ids is 'Its limiters, from narrow to broad.';
comment on column verdict.weight is 'Its share in relation to other partitions.';
comment on column verdict.due_at is 'When its next job was due, as the pass found it.';
comment on column verdict.waiting_since is 'Since when due jobs wait, as the pass found it.';
comment on column verdict.decayed is 'Its decayed admits, with those of the pass.';
comment on column verdict.admitted is 'How many of its jobs the pass admitted.';
comment on column verdict.probe_job_id is 'The probe that is out.';
comment on column verdict.head_id is 'The next of its due jobs; null: it has none.';
comment on column verdict.head_priority is 'Priority of its next job.';
comment on column verdict.head_run_at is 'When its next job was due.';
comment on column verdict.head_cost is 'What its next job costs.';
comment on column verdict.next_run_at is 'If it has no due job: when the first of its others is due.';
comment on column verdict.gone is 'Its jobs that left staging in this pass.';
comment on column verdict.ord is 'Place of the limiter that its next job waits for; null: it waits for none.';
comment on column verdict.breadth is 'Breadth of that limiter; null: it is gone.';
comment on column verdict.kind is 'Kind of that limiter.';
comment on column verdict.by_tokens is 'Whether that limiter counts tokens.';
comment on column verdict.ready_at is 'When that limiter may have room; null: when somebody says so.';
comment on column verdict.reason is 'Why due jobs stay; null: none does.';
comment on column verdict.denied_until is
  'When the partition is looked at again, if nobody wakes it; null: at once.';
comment on column verdict.blocked_on is 'The limiter it waits for; null: none.';
comment on type waiting_job is
  'A job that waits in Graphile Worker and may be adopted, as _waiting_jobs saw it.';
comment on column waiting_job.id is 'Graphile Worker''s id.';
comment on column waiting_job.revision is 'Revision of its row.';
comment on column waiting_job.attempts is 'How many attempts have started.';
comment on column waiting_job.job_key is 'Its key; null: none.';
comment on column waiting_job.queue_name is 'Graphile Worker''s queue; null: none.';
comment on column waiting_job.was_admitted is
  'Whether an admission put it into its row. Then each staged job of its key is newer.';
comment on type staging is
  'What a staging call returns for each job.';
comment on column staging.n is 'Its place in the caller''s input.';
comment on column staging.id is 'Null if the job was dropped, unless its key is remembered.';
comment on column staging.job is 'A job that was passed on, as Graphile Worker returned it. Not null with staged true: its key is remembered, so it was dropped, and id is that of the earlier one.';
comment on column staging.staged is
  'True: it waits for its gates. False: Graphile Worker has it.';
comment on column staging.task_identifier is
  'Graphile Worker''s identifier of the task.';
comment on column staging.queue_name is 'Graphile Worker''s queue; null: none.';
comment on column staging.run_at is 'When it is due.';
comment on column staging.max_attempts is 'How many attempts it has.';
comment on column staging.job_key is 'Its key; null: none.';
comment on column staging.priority is 'Lower goes first.';
comment on column staging.flags is
  'Graphile Worker''s flags that the caller gave; null: none.';
comment on column staging.created_at is 'When it was staged.';
comment on column staging.policy is 'Policy of its task; null: none.';
comment on column staging.partition is
  'Key of its partition; null: not worked out yet.';
comment on column staging.admitted is 'Whether it went in this call, see _admit_at_once.';
comment on column staging.shard is 'Shard of its partition.';

-- The types that people see.

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on type added_job is
  'What add_job and add_jobs return: a staged job, or one that Graphile Worker has.';
comment on column added_job.id is 'The staged id, or Graphile Worker''s. Null if dropped; with uniqueFor, that of the earlier job.';
comment on column added_job.staged is 'True: it waits for its gates. False: Graphile Worker has it.';
comment on column added_job.policy is 'Policy of its task; null: none.';
comment on column added_job.partition is 'Key of its partition; null: not worked out yet.';
comment on column added_job.shard is 'Shard of its partition.';
comment on column added_job.dropped is
  'True: nothing was staged, because the backlog is full, (unsafe_dedupe) a job outside the policy has the key, or (uniqueFor) the key is remembered.';
comment on column added_job.task_identifier is 'Graphile Worker''s identifier of the task.';
comment on column added_job.queue_name is 'Graphile Worker''s queue; null: none.';
comment on column added_job.run_at is 'When it is due.';
comment on column added_job.max_attempts is 'How many attempts it has.';
comment on column added_job.job_key is 'Its key; null: none.';
comment on column added_job.priority is 'Lower goes first.';
comment on column added_job.flags is
  'Graphile Worker''s flags that the caller gave; null: none.';
comment on column added_job.created_at is 'When it was staged, or added to Graphile Worker.';

comment on type exported_job is
  'A staged job as export returns it. Its columns are named as those of Graphile Worker''s job_spec, where that has them.';
comment on column exported_job.id is 'The staged id.';
comment on column exported_job.policy is 'Its policy.';
comment on column exported_job.partition is 'Key of its partition; null: not worked out yet.';
comment on column exported_job.identifier is 'Its task.';
comment on column exported_job.payload is
  'As it was given. Null: the job had failed, and Graphile Worker has it no longer.';
comment on column exported_job.queue_name is 'Graphile Worker''s queue; null: none.';
comment on column exported_job.run_at is 'When it is due; of a failed job: when it is tried again.';
comment on column exported_job.max_attempts is
  'How many attempts it has left; null: 25, Graphile Worker''s default.';
comment on column exported_job.job_key is 'Its key; null: none.';
comment on column exported_job.priority is 'Lower goes first.';
comment on column exported_job.flags is 'Flags that the caller gave; null: none.';
comment on column exported_job.created_at is 'When it was added, or parked.';
comment on column exported_job.attempts is 'How often it has failed.';
comment on column exported_job.last_error is 'Of a failed job: its last error.';
comment on column exported_job.expires_at is
  'When it is dropped, if it was not admitted by then; null: never.';

comment on type db_job is
  'A job as Graphile Worker''s administration functions return it. A staged one has no queue or task number.';
comment on column db_job.id is 'The staged id, or Graphile Worker''s.';
comment on column db_job.job_queue_id is
  'Graphile Worker''s number of its queue; null: none, or it is staged.';
comment on column db_job.task_id is
  'Graphile Worker''s number of its task; null: it is staged.';
comment on column db_job.payload is 'As it was given.';
comment on column db_job.priority is 'Lower goes first.';
comment on column db_job.run_at is 'When it is due.';
comment on column db_job.attempts is
  'How many attempts have started. 0 for a staged job that never ran.';
comment on column db_job.max_attempts is 'After so many attempts it fails for good.';
comment on column db_job.last_error is
  'Why its last attempt failed, or why it was quarantined; null: neither.';
comment on column db_job.created_at is 'When it was staged, or added to Graphile Worker.';
comment on column db_job.updated_at is
  'When Graphile Worker''s row was changed last. Of a staged job: when it was staged.';
comment on column db_job.key is 'Its job key; null: none.';
comment on column db_job.revision is
  'Graphile Worker''s count of the jobs of its key that got the row. 0 for a staged one.';
comment on column db_job.locked_at is 'When a worker fetched it; null: none runs it.';
comment on column db_job.locked_by is
  'Graphile Worker''s id of the worker that runs it; null: none.';
comment on column db_job.flags is
  'Graphile Worker''s flags, as an object with the value true for each; null: none.';
comment on column db_job.is_available is
  'True: no worker runs it, and it has attempts left. Always true of a staged job.';
