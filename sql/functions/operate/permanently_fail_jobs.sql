-- Fails jobs for good. A staged job is handed to Graphile Worker as failed, so that it is kept and shown there.
--
-- The danger: somebody may have the failed job run again. A newer job of its key may have been staged while this ran, and
-- does not know of its row. Without a flag the row would count as added later, and replace the newer job. The cure: it has
-- the flag of an admitted job.
create or replace function :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs(job_ids bigint[], error_message text default null)
returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_handed_ids bigint[];
  v_is_raced boolean;
  v_ids bigint[];
begin
  perform _before_change(job_ids);
  perform _record_removed(array(
    select s.id from staged_jobs s where s.id = any(job_ids) and s.parked_job_id is null),
    'failed', _first_line(error_message));
  with moved as (
    delete from staged_jobs s
    where s.id = any(job_ids) and s.parked_job_id is null returning s.*
  ),
  counted as materialized (
    select _count_removed(
      array(select m.task_identifier from moved m), array(select m.partition_id from moved m))
  )
  select array_agg(a.id) filter (where (select count(*) from counted) >= 0),
    bool_or(a.key is not null and _is_raced(k.id, k.next_revision, a.id, a.revision))
  into v_handed_ids, v_is_raced
  from moved m
  left join lateral _job_of_key(m.job_key, m.known_job_id, m.known_revision) k on true
  cross join lateral :GRAPHILE_WORKER_SCHEMA.add_job(
    m.task_identifier, m.payload, m.queue_name, 'infinity', m.max_attempts::int,
    -- Graphile Worker may have a newer job under its key, which would be failed in its place
    case when k.is_newer is not true then m.job_key end, m.priority::int,
    array(select f from unnest(m.flags) f where not _is_own_flag(f))
      || _ticket(m.id, _admission_now(), m.partition_id, m.job_key,
        _trace_text(m.traceparent, m.created_at, m.run_at, m.run_at_given))) a;
  if v_is_raced then
    raise exception 'dispatch_policy: a job of this key was added meanwhile: call permanently_fail_jobs again'
      using errcode = 'lock_not_available';
  end if;
  v_ids := _graphile_ids(job_ids) || v_handed_ids;
  return query
  select x.* from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(v_ids, error_message) j
  cross join lateral _as_job(j) x;
  perform _job_gone(v_ids);
  v_ids := _adopted_ids(job_ids);
  if v_ids <> '{}' then
    return query select j.* from :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs(v_ids, error_message) j;
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs from public;
