-- A job's flag, by which an admitted job is known in Graphile Worker, and what a job's row there says.

-- The flag of a job that was staged: its staged id, its admission as _admission_now tells it, and the mark of its partition.
-- A job with a key has a mark of that as well, and the time, in microseconds since 1970. By the partition's mark a worker
-- sees whether it works out the same partition; for the rest see _is_ours.
--
-- A traced job has its _trace_text as well, after the third dot. Any other flag ends before it.
create or replace function _ticket(staged_id bigint, admission bigint, partition_id uuid, job_key text, trace text)
returns text language sql volatile as $$   -- as clock_timestamp(), or it would not be inlined
  select 'dispatch_policy:' || staged_id || '@' || admission || '#' || coalesce(_mark_of(partition_id), '')
    || case when job_key is null then '' else '.' || left(md5(job_key), 8)
      || '.' || (extract(epoch from clock_timestamp()) * 1000000)::bigint end
    || coalesce(case when job_key is null then '...' else '.' end || trace, '');
$$;

-- The flag of a job that was staged, without its beginning: see _ticket. '': the job has none. It is cut out of the flags'
-- text, because parsing them takes twice as long, and a regular expression more. Within a flag a quotation mark follows a
-- backslash. Ours is mostly the first flag.
--
-- It has no `set search_path`: only then the planner can put it into a view.
create or replace function _flag_text(flags jsonb) returns text language sql immutable return
  coalesce(
    nullif(split_part(split_part(flags::text, '{"dispatch_policy:', 2), '"', 1), ''),
    split_part(split_part(' ' || substr(flags::text, 2), ' "dispatch_policy:', 2), '"', 1));

-- The staged id that a job of Graphile Worker's carries as a flag; null: none, or one that somebody made up.
create or replace function _staged_id_of(flags jsonb) returns bigint language sql immutable as $$
  select case when _staged_id_text(flags) ~ '^[0-9]{1,18}$' then _staged_id_text(flags)::bigint end;
$$;

-- The staged id that a job of Graphile Worker's carries as a flag, as text; '': none.
create or replace function _staged_id_text(flags jsonb) returns text language sql immutable as $$
  select split_part(_flag_text(flags), '@', 1);
$$;

-- Whether a flag is one that this package gives to an admitted job.
create or replace function _is_own_flag(flag text) returns boolean language sql immutable as $$
  select flag like 'dispatch\_policy:%';
$$;

-- Whether an admission of ours put a job of Graphile Worker's into its row. If the row was made after the flag, or has
-- another key than the admitted job, somebody copied the flag.
--
-- A row is as old as the transaction that made it. That may be younger than the admission's own: the admission waited, and
-- found the row under its job's key. So the flag of a job with a key also has the time at which it was written.
create or replace function _is_ours(flags jsonb, created_at timestamptz, job_key text)
returns boolean language sql immutable as $$
  select _staged_id_of(flags) is not null and coalesce((
    select extract(epoch from created_at) * 1000000 <= coalesce(nullif(split_part(t.marks, '.', 3), ''), t.admission)::numeric
      -- whoever replaces a job that runs takes its key off
      and (job_key is null or split_part(t.marks, '.', 2) = left(md5(job_key), 8))
    from (
      select split_part(r.rest, '#', 1) as admission, split_part(r.rest, '#', 2) as marks
      from (select split_part(_flag_text(flags), '@', 2) as rest) r
    ) t
    where t.admission ~ '^[0-9]{1,18}$' and split_part(t.marks, '.', 3) ~ '^[0-9]{0,18}$'), false);
$$;

-- The flags of a job without ours. Null: it has none.
create or replace function _callers_flags(flags jsonb) returns text[] language sql immutable as $$
  select array_agg(f.flag order by f.flag) from jsonb_object_keys(flags) f (flag)
  where not _is_own_flag(f.flag);
$$;

-- A job's flags without those that this package gives jobs.
create or replace function _own_flags_off(p_flags text[]) returns text[] language plpgsql immutable as $$
begin
  return array(select f from unnest(p_flags) f where not _is_own_flag(f));
end
$$;

-- Whether Graphile Worker's row still has the job that is meant, and not the next one of its key. It has if its revision is
-- the one that was named (null: whichever). A job that may not replace it (unsafe_dedupe) raises the revision as well, but leaves
-- the flag with its staged id.
create or replace function _is_row_of(named_revision int, staged_id bigint, revision int, flags jsonb)
returns boolean language sql immutable as $$
  select named_revision is null or revision = named_revision
    or (_staged_id_of(flags) = staged_id) is true;
$$;

-- Whether an end belongs to the admission and the attempt that have the slot now. If it belongs to earlier ones, others
-- have taken the slot. Null is unknown, and counts as belonging.
create or replace function _is_end_of(ended_admission bigint, ended_attempt int, admission bigint, attempt int)
returns boolean language sql immutable as $$
  select coalesce(ended_admission = admission, true) and coalesce(ended_attempt >= attempt, true);
$$;

-- Whether a row of Graphile Worker is still the parked job of this staged job. If somebody had the job retried, the row
-- has a time. If the next job of the key has got the row, the revision is later. It then has no error, and not the staged
-- job's flag. The revision alone does not show that: a job that was only deduplicated (unsafe_dedupe) raises it too.
create or replace function _is_parked(
  staged_id bigint, parked_revision int, run_at timestamptz, revision int, last_error text, flags jsonb
) returns boolean language sql immutable as $$
  select run_at = 'infinity' and (
    last_error is not null or _is_row_of(parked_revision, staged_id, revision, flags));
$$;

-- The job that Graphile Worker has under a key, as far as a staged job of that key is concerned.
--
--   p_known_*      the job that Graphile Worker had under the key when the staged one was added
--   next_revision  that the next job of the key gets. If this job waits, the next one gets its row. If it runs or has failed
--     for good, the next one gets a row of its own.
--   is_newer       it came past this package after the staged job was added, and has not failed for good. Times do not tell,
--     because rescheduling a row changes them
create or replace function _job_of_key(p_key text, p_known_job_id bigint, p_known_revision int)
returns table (id bigint, next_revision int, is_newer boolean) language sql stable rows 1 as $$
  select j.id, case when j.locked_at is null and j.attempts < j.max_attempts then j.revision + 1 else 0 end,
    not _is_ours(j.flags, j.created_at, j.key)
      and not (j.locked_at is null and j.attempts >= j.max_attempts)
      and (j.id, j.revision) is distinct from (p_known_job_id, p_known_revision)
  from :GRAPHILE_WORKER_SCHEMA.jobs j where j.key = p_key limit 1;
$$;

-- A plain staged job as Graphile Worker takes it. `start`: its run_at, if its caller gave none.
create or replace function _spec_of(job staged_jobs, admission bigint, start timestamptz)
returns :GRAPHILE_WORKER_SCHEMA.job_spec language sql volatile as $$
  select row(
    (job).task_identifier, (job).payload, (job).queue_name, case when (job).run_at_given then (job).run_at else start end,
    (job).max_attempts, null, (job).priority,
    case when (job).flags is not null then _own_flags_off((job).flags) end
      || _ticket((job).id, admission, (job).partition_id, null,
        _trace_text((job).traceparent, (job).created_at, (job).run_at, (job).run_at_given))
  ):::GRAPHILE_WORKER_SCHEMA.job_spec;
$$;

-- What the flag of an admitted job tells of its trace: the trace context, and when the job was staged. If it was due only
-- later, that time follows. Times are in microseconds since 1970. null: nobody traces the job.
--
-- A time after the year 30000 does not follow. The last possible one has more microseconds than a bigint, and nobody could
-- fail such a job.
create or replace function _trace_text(traceparent text, created_at timestamptz, run_at timestamptz, run_at_given boolean)
returns text language sql stable as $$
  select case when traceparent is not null then
    traceparent || '.' || (extract(epoch from created_at) * 1000000)::bigint
      || case when run_at_given and run_at > created_at and run_at < '30000-01-01'
        then '.' || (extract(epoch from run_at) * 1000000)::bigint else '' end end;
$$;

-- The attempts of a staged job: Graphile Worker's default is 25.
create or replace function _max_attempts(max_attempts int) returns int language sql immutable as $$
  select coalesce(max_attempts, 25);
$$;

-- When a job may run: now, unless it says. The value -infinity is now as well, because a difference from it would fail
-- each pass of its policy. The value infinity stays, as in Graphile Worker: such a job never runs by itself.
create or replace function _run_at(run_at timestamptz) returns timestamptz language sql stable as $$
  select case when run_at > '-infinity' then run_at else now() end;
$$;

-- The id of the trace that a traceparent names. Null: there is none.
create or replace function _trace_id_of(traceparent text) returns text language sql immutable as $$
  select nullif(split_part(traceparent, '-', 2), '');
$$;

-- A trace context in W3C's form, version 00; null: the text has another form. Then the job runs without it, because no job
-- should fail for its trace. It costs 15 us, so it is called once for a call from SQL, and not for each job.
create or replace function _traceparent(traceparent text) returns text language sql immutable as $$
  select case
    when traceparent ~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' then traceparent end;
$$;

-- The trace context in the flag of a job that was staged; null: it has none. See _ticket.
create or replace function _traceparent_of(flags jsonb) returns text language sql immutable as $$
  select _traceparent(split_part(_flag_text(flags), '.', 4));
$$;

-- What a job has paid, after another one of its key was admitted in its row. `pays`: it has paid its cost now, and else what
-- the one before has. Who returns tokens to a window later must not take them off a later spending than this one. So the
-- time of the first payment stays. So does it that one was admitted past its gates: the other may have paid the difference.
create or replace function _paid_again(before in_flight_jobs, paid jsonb, pays boolean)
returns jsonb language sql stable as $$
  select coalesce(before.paid, '{}') - case when pays then '{cost,gates}'::text[] else '{}' end || coalesce(paid, '{}')
    || jsonb_build_object('at', coalesce(before.paid -> 'at', to_jsonb(before.admitted_at)));
$$;

-- What these costs say of a gate: that of its name in `gates`, or else `cost`, which is for all. Null: nothing.
create or replace function _cost_at(costs jsonb, gate text) returns float8 language sql immutable as $$
  select coalesce(costs #>> array['gates', gate], costs ->> 'cost')::float8;
$$;

-- The `sort_at` of a job that comes back to staging. Under strict order it goes first. Under deadlines it keeps its own.
create or replace function _sort_at_again(p_order text, p_sort_at timestamptz) returns timestamptz
language sql immutable as $$
  select case p_order when 'strict' then '-infinity'::timestamptz when 'deadline' then p_sort_at end;
$$;

-- A wait of so many seconds: never negative, and never so long that PostgreSQL cannot add it to a time.
create or replace function _wait(seconds float8) returns interval language sql stable as $$
  select make_interval(secs => least(greatest(seconds, 0), 8.64e10));
$$;

-- How a released job has ended for good, as in the history. Null: it goes on.
--
--   p_ok          how its last run ended; null: nobody saw it
--   p_is_parked   it waits in staging for its retry
--   p_attempts, p_max_attempts, p_is_locked   of its row in Graphile Worker, null: that does not have it any more
--
-- A failed job that is neither parked nor out of attempts is retried past the gates. A job whose end nobody saw has ended if
-- Graphile Worker will not run it any more.
create or replace function _outcome(
  p_ok boolean, p_is_parked boolean, p_attempts int, p_max_attempts int, p_is_locked boolean
) returns text language sql immutable as $$
  select case
    when p_ok then 'succeeded'
    when p_is_parked then null
    when p_attempts is null then case when p_ok is null then 'gone' else 'failed' end
    when p_attempts >= p_max_attempts and (p_ok is not null or not p_is_locked) then 'failed'
  end;
$$;
