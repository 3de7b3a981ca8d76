-- Brings jobs back that have failed for good, with all their attempts. Those of a policy pass its gates again, and fail
-- under its back-off. Others run as Graphile Worker runs them. Of a partition it finds the jobs that a pass had admitted.
--
--   ids       Only these. Null: any.
--   since     Only jobs that failed then or later.
--   until     Only jobs that failed before.
--   error     Only jobs whose last error contains this text.
--   count     It brings back at most so many, and one _portion of payloads: those first that failed first.
--   matched   How many failed jobs match.
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
  v_tasks text[];
  v_partition_id uuid;
  v_mark text;
  v_ids bigint[];
  v_id bigint;
  v_bytes bigint := 0;
  v_locked_ids bigint[] := '{}';
begin
  if retry.ids is null and retry.policy is null then
    raise exception 'dispatch_policy: retry: expected ids or a policy, got neither' using errcode = 'DPARG';
  end if;
  if retry.count is null or retry.count < 1 then
    raise exception 'dispatch_policy: retry: count is %, expected 1 or more', coalesce(retry.count::text, 'null')
      using errcode = 'DPARG';
  end if;
  if retry.partition is not null and retry.policy is null then
    raise exception 'dispatch_policy: retry: partition is %, expected a policy with it, got none', quote_literal(retry.partition)
      using errcode = 'DPARG';
  end if;
  if retry.policy is not null then
    v_tasks := array(
      select t.task_identifier from policy_tasks t
      where t.policy_id = (_policy(retry.policy)).id);
    v_partition_id := _partition_id(retry.policy, retry.partition);
    v_mark := _mark_of(v_partition_id);
    if exists (   -- there is a pair among some 100,000
      select from partitions q
      where q.id between _marked_id(v_mark, '0') and _marked_id(v_mark, 'f')
        and q.id <> v_partition_id
    ) then
      raise exception 'dispatch_policy: retry: another partition has the same mark as %: give the ids of the jobs',
        quote_literal(retry.partition) using errcode = 'DPARG';
    end if;
  end if;
  v_ids := array(
    select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.locked_at is null and j.attempts >= j.max_attempts
      and (retry.ids is null or j.id = any(retry.ids)
        or (_staged_id_of(j.flags) = any(retry.ids)
          and _is_ours(j.flags, j.created_at, j.key)))
      and not exists (select from in_flight_jobs f where f.job_id = j.id)
      and not exists (select from staged_jobs s where s.job_key = j.key)
      and (retry.ids is not null or not _is_replaced(j.flags, j.key, j.last_error))
      and (retry.policy is null or j.task_identifier = any(v_tasks))
      and (retry.partition is null or _partition_mark(j.flags) = v_mark)
      and (retry.since is null or j.updated_at >= retry.since)
      and (retry.until is null or j.updated_at < retry.until)
      and (retry.error is null or strpos(j.last_error, retry.error) > 0)
    order by j.updated_at, j.id);
  matched := cardinality(v_ids);
  changed := 0;
  if not coalesce(retry.dry_run, false) then
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
