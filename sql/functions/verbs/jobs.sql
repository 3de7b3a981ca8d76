-- Verbs: remove, cancel and retry jobs.

-- Removes staged jobs: by id, by job key, or all of a policy or partition. Admitted jobs stay, and locked rows are skipped.
-- A parked job waits inside Graphile Worker, which keeps it as failed for good.
--
-- One call is one step: at most `count` jobs after the id `after`, those first that were staged first. Call it after
-- `last_id`, each time in a transaction of its own, until `more` is false. A long backlog would otherwise be one
-- transaction, whose locks keep passes from these jobs. A step from the lowest id would read over all rows that were removed
-- before. `dry_run` locks nothing, so it also counts jobs that somebody has locked.
create or replace function :DISPATCH_POLICY_SCHEMA.remove(
  ids bigint[] default null, job_key text default null, policy text default null, partition text default null,
  reason text default null, by text default null, dry_run boolean default false, count int default 500,
  after bigint default 0
) returns table (matched int, changed int, more boolean, last_id bigint) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_custom_plan as $$   -- each of the ways to name jobs has a plan of its own
#variable_conflict use_column
declare
  v_ids bigint[] := '{}';
  v_page bigint[];
  v_after bigint := coalesce(remove.after, 0);
begin
  if remove.ids is null and remove.job_key is null and remove.policy is null then
    raise exception 'dispatch_policy: remove: expected ids, a job_key or a policy, got none of them' using errcode = 'DPARG';
  end if;
  perform _check_count('remove', remove.count);
  if remove.policy is not null then
    perform _policy(remove.policy);
  end if;
  changed := 0; more := false;
  if remove.dry_run then
    matched := (select count(*) from _removable(remove.ids, remove.job_key, remove.policy, remove.partition) r);
    return next; return;
  end if;
  -- Another session may have a whole page locked: then the next one follows. Each page has its own limit, by which
  -- PostgreSQL reads no further in the order of the ids. Under one limit over all it sorted the whole backlog in each step.
  loop
    v_page := array(
      select r.id from _removable(remove.ids, remove.job_key, remove.policy, remove.partition) r
      where r.id > v_after order by r.id limit remove.count - cardinality(v_ids));
    exit when v_page = '{}';
    v_after := v_page[cardinality(v_page)];
    last_id := v_after;
    v_ids := v_ids || array(
      select s.id from staged_jobs s where s.id = any(v_page) order by s.id for update skip locked);
  end loop;
  more := cardinality(v_ids) = remove.count;
  -- one that somebody moved to another partition before it was locked stays
  v_ids := array(
    select r.id from _removable(remove.ids, remove.job_key, remove.policy, remove.partition) r where r.id = any(v_ids));
  matched := cardinality(v_ids);
  perform _remove_staged(v_ids, null, null);
  changed := matched;
  perform _audit('remove', remove.policy, remove.partition, null, null,
    jsonb_build_object('ids', remove.ids, 'job_key', remove.job_key), remove.reason, remove.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove from public;

-- The staged jobs that `remove` and `cancel` act on: by their ids, by their job key, or those of a policy or partition. If
-- several are given, a job matches all. A parked job has Graphile Worker's id as well. PostgreSQL inlines this query.
create or replace function _removable(p_ids bigint[], p_job_key text, p_policy text, p_partition text)
returns table (id bigint) language sql stable as $$
  select s.id from staged_jobs s
  left join partitions q on q.id = s.partition_id
  left join policies p on p.id = q.policy_id
  where (p_ids is null or s.id = any(p_ids) or s.parked_job_id = any(p_ids))
    and (p_job_key is null or s.id = any(array(
      select n.id from staged_jobs n where n.job_key = p_job_key
      union all
      select n.id from :GRAPHILE_WORKER_SCHEMA.jobs j join staged_jobs n on n.parked_job_id = j.id where j.key = p_job_key)))
    -- a job that was just staged has only its partition's id
    and (p_policy is null or p.name = p_policy or (q.id is null and s.task_identifier in (
      select t.task_identifier from policy_tasks t join policies x on x.id = t.policy_id where x.name = p_policy)))
    and (p_partition is null or (p_policy is null and q.key = p_partition)
      or (s.partition_id = any(array(select unnest(_lanes(p_policy, p_partition, true))))
        and (s.due or not s.due)));   -- true of all: by it PostgreSQL uses the two indexes that the jobs of a partition are in
$$;

-- Cancels jobs: by their ids, staged or Graphile Worker's, or all of a policy or partition. Staged jobs are removed. Failed
-- ones that wait for their retry, and admitted ones that no worker has fetched, fail for good in Graphile Worker; their
-- slots come back with the next sweep. Jobs that run (`running`) are told to end, in whichever process they run. They fail
-- for good unless they succeed, and keep their slots until then. If an earlier call has told them, they match, and do not
-- change.
--
-- One call is one step: at most `count` jobs that are staged, as many that were admitted, and as many that run. Call it,
-- each time in a transaction of its own, until `more` is false: there are no more, and none was on its way between staging
-- and Graphile Worker. A step from the lowest id reads over all rows that were removed before. So give `last_id` as `after`
-- while it is not null. Jobs may have come back to staging before it. So the last call is one without `after`.
--
-- Between two looks a pass may admit a job, or a release may stage it again. So it looks in both places until a second look
-- finds nothing.
create or replace function :DISPATCH_POLICY_SCHEMA.cancel(
  ids bigint[] default null, policy text default null, partition text default null, reason text default null,
  by text default null, dry_run boolean default false, count int default 500, after bigint default 0
) returns table (matched int, changed int, running int, more boolean, last_id bigint) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_after bigint := coalesce(cancel.after, 0);
  v_by text := coalesce(cancel.by, session_user);
  v_look record;
  v_removed int := 0;
  v_ended bigint[] := '{}';
  v_told bigint[] := '{}';
  v_known bigint[]; v_changed int;
begin
  perform _check_which('cancel', cancel.ids, cancel.policy, cancel.partition, cancel.count);
  more := false;
  if cancel.dry_run then
    select count(*), 0, count(*) filter (where c.runs) into matched, changed, running
    from _cancellable(cancel.ids, cancel.policy, cancel.partition) c where not c.ended;
    matched := matched + (select count(*) from _removable(cancel.ids, null, cancel.policy, cancel.partition) r);
    return next; return;
  end if;
  perform _check_isolation('cancel');
  for v_nth in 1 .. 5 loop
    if v_nth = 1 then
      v_look := _cancel_look(cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason, cancel.count, v_after);
    else
      v_look := _cancel_second_look(cancel.ids, cancel.policy, cancel.partition, v_by, cancel.reason, cancel.count, v_after);
    end if;
    if v_look is null then   -- it waited in vain
      last_id := null; more := true;
      exit;
    end if;
    v_removed := v_removed + v_look.removed;
    v_ended := v_ended || v_look.ended;
    v_told := v_told || v_look.told;
    v_known := coalesce(v_known, v_look.known);
    v_changed := v_look.removed + cardinality(v_look.ended || v_look.told);
    last_id := v_look.last_id;
    more := v_look.is_full or v_look.missed or v_changed > 0;
    exit when v_look.is_full or (v_nth > 1 and v_changed = 0);
  end loop;
  -- one that was told to end, and failed before the next look, was ended then
  v_told := array(select unnest(v_told) except select unnest(v_ended));
  changed := v_removed + cardinality(v_ended || v_told);
  matched := changed + cardinality(v_known);
  running := cardinality(v_told);
  perform _audit('cancel', cancel.policy, cancel.partition, null, null,
    jsonb_build_object('ids', cancel.ids, 'running', running), cancel.reason, cancel.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.cancel from public;

-- One look of a cancel at staging and at the jobs in flight. It locks staged rows, rows of Graphile Worker's and in-flight
-- rows in this order, and waits for them. Of each kind it takes up to so many, staged jobs after `p_after`.
--
-- The danger: a pass has moved a job into Graphile Worker, and its transaction is still open. A look that passes by locked
-- rows finds the job in neither place. The cure: it waits for the staged row, and looks into Graphile Worker afterwards.
--
--   ended     jobs that were admitted and not fetched, which have failed for good
--   told      jobs that run, and were told to end; known: a cancel before has told them
--   missed    a job was on its way between the two places: look again
--   is_full   there may be more than `p_max` jobs of a kind; of staged ones, after last_id
create or replace function _cancel_look(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text, p_max int, p_after bigint,
  out removed int, out ended bigint[], out told bigint[], out known bigint[], out missed boolean, out is_full boolean,
  out last_id bigint
) language plpgsql volatile
set plan_cache_mode = force_custom_plan as $$   -- as remove
declare
  v_ids bigint[] := array(
    select r.id from _removable(p_ids, null, p_policy, p_partition) r where r.id > p_after order by r.id limit p_max);
  v_unfetched bigint[]; v_revisions int[]; v_marked record;
begin
  removed := 0;
  last_id := v_ids[p_max];
  if v_ids <> '{}' then
    v_ids := array(select s.id from staged_jobs s where s.id = any(v_ids) order by s.job_key, s.id for update);
    v_ids := array(   -- one that somebody moved to another partition meanwhile stays
      select r.id from _removable(p_ids, null, p_policy, p_partition) r where r.id = any(v_ids));
    perform _remove_staged(v_ids, p_by, p_reason);
    removed := cardinality(v_ids);
  end if;
  -- Graphile Worker's functions take a job that has run for four hours for one that nobody runs. So jobs that run are left
  -- out before they see them.
  select coalesce(array_agg(x.job_id), '{}'), array_agg(x.revision) into v_unfetched, v_revisions
  from (
    select c.job_id, c.revision from _cancellable(p_ids, p_policy, p_partition) c
    where not (c.runs or c.ended) order by c.job_id limit p_max
  ) x;
  ended := '{}';
  if v_unfetched <> '{}' then
    ended := _lock_in_revision(v_unfetched, v_revisions);
    ended := array(
      select c.job_id from _cancellable(p_ids, p_policy, p_partition) c
      where c.job_id = any(_cancel_look.ended) and not (c.runs or c.ended));
    perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[j.id], _cancelled_error(p_by, p_reason, j.last_error))
    from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = any(ended);
  end if;
  v_marked := _mark_cancelled(p_ids, p_policy, p_partition, p_by, p_reason, ended, p_max);
  told := v_marked.told;
  known := v_marked.known;
  missed := cardinality(ended) < cardinality(v_unfetched) or v_marked.missed;
  is_full := last_id is not null or cardinality(v_unfetched) = p_max or v_marked.is_full;
end
$$;

-- A look of a cancel after the first one of its transaction. Null: it did not get a row, and undid itself.
--
-- The danger: the first look has locked in-flight rows, and staged rows come before these in the lock order. If a pass has
-- locked a staged row and waits for one of those in-flight rows, the two deadlock. The cure: it waits for a moment.
create or replace function _cancel_second_look(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text, p_max int, p_after bigint
) returns record language plpgsql volatile set lock_timeout = '5ms' as $$
begin
  return _cancel_look(p_ids, p_policy, p_partition, p_by, p_reason, p_max, p_after);
exception when lock_not_available then
  return null;
end
$$;

-- Brings jobs back that have failed for good, with all their attempts. Those of a policy pass its gates again, and fail
-- under its back-off. Others run as Graphile Worker runs them. Of a partition it finds the jobs that a pass had admitted.
--
--   since, until   only jobs that failed then or later, and before
--   error          only jobs whose last error contains this text
--   count          it brings back at most so many, and one _portion of payloads: those first that failed first
--
-- A job that a newer one of its key had replaced stays, unless its id is given: the newer one was meant to run. A job whose
-- newer one still waits stays in any case, and so does one whose end is not reported yet: it has its slot.
--
-- Several may bring the same jobs back at once. So the rows are locked, and looked at again.
create or replace function :DISPATCH_POLICY_SCHEMA.retry(
  ids bigint[] default null, policy text default null, partition text default null, since timestamptz default null,
  until timestamptz default null, error text default null, count int default 1000, reason text default null,
  by text default null, dry_run boolean default false
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_tasks text[]; v_mark text; v_ids bigint[]; v_id bigint;
  v_bytes bigint := 0;
  v_locked_ids bigint[] := '{}';
begin
  perform _check_which('retry', retry.ids, retry.policy, retry.partition, retry.count);
  if retry.policy is not null then
    v_tasks := array(
      select t.task_identifier from policies p join policy_tasks t on t.policy_id = p.id where p.name = retry.policy);
    v_mark := _mark_of(_partition_id(retry.policy, retry.partition));
    if exists (   -- there is a pair among some 100,000
      select from partitions q join policies p on p.id = q.policy_id
      where q.id between _marked_id(v_mark, '0') and _marked_id(v_mark, 'f')
        and (p.name, q.key) <> (retry.policy, retry.partition)
    ) then
      raise exception 'dispatch_policy: retry: another partition has the same mark as %: give the ids of the jobs',
        quote_literal(retry.partition) using errcode = 'DPARG';
    end if;
  end if;
  v_ids := array(
    select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.locked_at is null and j.attempts >= j.max_attempts
      and (retry.ids is null or j.id = any(retry.ids)
        or (_staged_id_of(j.flags) = any(retry.ids) and _is_ours(j.flags, j.created_at, j.key)))
      and not exists (select from in_flight_jobs f where f.job_id = j.id)
      and not exists (select from staged_jobs s where s.job_key = j.key)
      and (retry.ids is not null or not _is_replaced(j.flags, j.key, j.last_error))
      and (retry.policy is null or j.task_identifier = any(v_tasks))
      and (retry.partition is null or left(split_part(split_part(_flag_text(j.flags), '@', 2), '#', 2), 8) = v_mark)
      and (retry.since is null or j.updated_at >= retry.since)
      and (retry.until is null or j.updated_at < retry.until)
      and (retry.error is null or strpos(j.last_error, retry.error) > 0)
    order by j.updated_at, j.id);
  matched := cardinality(v_ids);
  changed := 0;
  if retry.dry_run is not true then
    -- without a change, but for updated_at, by which the others are in order
    foreach v_id in array v_ids[1:retry.count] loop
      exit when _portion(v_bytes) > 0;
      v_bytes := v_bytes + coalesce((
        select octet_length(j.payload::text) + octet_length(j.last_error)
        from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[v_id]) j), 0);
      v_locked_ids := v_locked_ids || v_id;
    end loop;
    changed := (
      select count(*) from :DISPATCH_POLICY_SCHEMA.reschedule_jobs(array(
        select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.id = any(v_locked_ids) and j.locked_at is null and j.attempts >= j.max_attempts
          and not exists (select from in_flight_jobs f where f.job_id = j.id)),
        run_at => clock_timestamp(), attempts => 0));
    perform _audit('retry', retry.policy, retry.partition, null, null,
      jsonb_strip_nulls(jsonb_build_object('ids', retry.ids, 'since', retry.since, 'until', retry.until, 'error', retry.error)),
      retry.reason, retry.by, matched, changed);
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.retry from public;

-- Whether a failed job of Graphile Worker's had a newer job of its key. Either _give_up_replaced failed it. Or it ran when
-- the newer one came, and Graphile Worker took its key off; its flag still has the mark of the key.
create or replace function _is_replaced(flags jsonb, job_key text, last_error text) returns boolean
language sql immutable as $$
  select last_error is not distinct from _replaced_error()
    or (job_key is null and coalesce(split_part(_flag_text(flags), '.', 2), '') <> '');
$$;

-- Stages a job again that somebody runs again, and that has no slot: it failed for good, or freed its slot. It was admitted
-- once, and would start past its limits. So it is parked, and staged like any retry. If only JavaScript can work out the
-- partition, the job waits for the next tick of a process that has the policy.
--
-- A job that waits in Graphile Worker for a later time frees its slot with the next sweep.
create or replace function _stage_again(p_job :DISPATCH_POLICY_SCHEMA.db_job)
returns void language plpgsql as $$
declare
  v_job record;
  v_policy policies;
  v_definition jsonb;
  v_ids regclass := pg_get_serial_sequence('staged_jobs', 'id');
begin
  if (p_job).locked_at is null and (p_job).run_at > clock_timestamp() + interval '1 second' then
    perform _leave_to_sweep(array[(p_job).id]);
  end if;
  select case when _is_ours(g.flags, g.created_at, g.key) then _staged_id_of((p_job).flags) end as staged_id,
    g.task_identifier, g.queue_name, p as policy
  into v_job
  from :GRAPHILE_WORKER_SCHEMA.jobs g
  join policy_tasks t on t.task_identifier = g.task_identifier
  join policies p on p.id = t.policy_id and p.enabled
    and (p.retries = 'restage' or (p_job).attempts = 0)   -- other retries go past the gates
  where g.id = (p_job).id
    and (p_job).locked_at is null and (p_job).attempts < (p_job).max_attempts and (p_job).run_at < 'infinity'
    and _staged_id_of((p_job).flags) is not null
    and not exists (select from in_flight_jobs f where f.job_id = g.id)
    -- if a copy of it was staged, and its worker died before it completed, it has nothing left to do
    and not exists (select from superseded_jobs o where o.job_id = g.id and o.revision = (p_job).revision);
  if not found then
    return;
  end if;
  v_policy := v_job.policy;
  v_definition := v_policy.definition;
  perform _stage_parked(
    v_policy,
    -- An id that was never given comes from a forged flag, and would be another job's one day. An adopted job has the
    -- id that it had in Graphile Worker before. A flag that was copied names another job: under its id, this one would
    -- end it in its group.
    case when v_job.staged_id between 1000000000000000 and pg_sequence_last_value(v_ids)
        or (v_job.staged_id < (p_job).id and not exists (
          select from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = v_job.staged_id))
      then v_job.staged_id else nextval(v_ids) end,
    p_job, v_job.task_identifier, v_job.queue_name,
    case when (v_definition ->> 'resolvesInSql')::boolean
      then _path_key(v_definition, (p_job).payload, v_job.task_identifier) end);
-- It has no key, and fails at its start with the same message. Or PostgreSQL cannot read a text in it, as in _key_or_null:
-- then it goes by its gates when it starts.
exception when sqlstate 'DPKEY' or data_exception then null;
end
$$;
