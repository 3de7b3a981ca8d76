-- What happened to each job of policies with the option `history`, from its first admission or removal on. Sweeps delete rows
-- once they are older than the option keeps them.
create or replace view :DISPATCH_POLICY_SCHEMA.history as
select h.staged_id as id, h.job_id, p.name as policy, h.partition, h.task_identifier, h.job_key, h.added_at, h.due_at,
  h.admitted_at, h.last_admitted_at, h.started_at, h.ended_at, h.outcome, h.attempts, h.error,
  _waited_by('reason', h.waited) as waited,
  _waited_by('gate', h.waited) as waited_by_gate,
  h.failed_attempts, h.trace_id
from history h
join policies p on p.id = h.policy_id;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column history.id is 'The id it had in staging; of a job that was never there Graphile Worker''s.';
comment on column history.job_id is 'Graphile Worker''s id; null: it was never admitted.';
comment on column history.policy is 'Name of the policy.';
comment on column history.partition is 'Key of the partition; null: never worked out.';
comment on column history.task_identifier is 'Its task.';
comment on column history.job_key is 'Its job key.';
comment on column history.added_at is
  'When it was added; null: it came past its policy, or before the option.';
comment on column history.due_at is 'From when it might go; null as added_at.';
comment on column history.admitted_at is 'When it was admitted first; null: never.';
comment on column history.last_admitted_at is
  'When it was admitted last: after a failure it passes its gates again.';
comment on column history.started_at is
  'When its last attempt started; null: it did not, or nobody saw it.';
comment on column history.ended_at is 'When it ended for good; null: it has not.';
comment on column history.outcome is
  'succeeded, failed (for good), removed, dropped, replaced or gone, as docs/operating.md explains; null: it has not ended.';
comment on column history.attempts is 'How many times it was started; null: it has not ended, or nobody knows.';
comment on column history.error is 'First line of its last error, if it failed for good; of one that was dropped why: expired or max_pending.';
comment on column history.waited is
  'Seconds that it waited in staging before its admissions, by reason. in_line: nothing held its partition back. docs/operating.md says how they are counted.';
comment on column history.waited_by_gate is
  'Seconds that it waited in staging for each gate, by its name. Waits for no gate, such as a pause, are left out.';
comment on column history.failed_attempts is
  'Its attempts that failed, at most the last ten: a list of { attempt, started_at, ended_at, error }. error is the first line.';
comment on column history.trace_id is
  'The trace in which it was added, as W3C''s trace context has it; null: none is known.';
