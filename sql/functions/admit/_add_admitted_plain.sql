-- _add_admitted for jobs that have neither a key nor a parked row. It has no row of Graphile Worker's to look for, and no job
-- comes back. The steps for those took a quarter of the time of a small admission, also if there was none.
create or replace function _add_admitted_plain(
  p_candidates candidate[], p_from timestamptz, p_ids bigint[], p_starts int[],
  p_admission bigint, p_now timestamptz
) returns admission[] language plpgsql volatile as $$
declare
  v_admissions admission[];
begin
  with moved as materialized (
    delete from staged_jobs s
    where s.ctid = any(array(
      select x.ctid from staged_jobs x
      where x.ctid = any(array(select c.ct from unnest(p_candidates) c where c.chosen))
        and (x.id in (select c.staged_id from unnest(p_candidates) c where c.chosen)) is true
        and x.job_key is null and x.parked_job_id is null
        and (x.expires_at <= p_now) is not true   -- it was locked when _expire looked
      for update skip locked
    ))
    returning s.id, s.task_identifier, s.payload, s.queue_name, s.run_at, s.run_at_given, s.max_attempts, s.priority, s.flags,
      s.partition_id, s.traceparent, s.created_at
  ),
  specs as materialized (
    select array_agg(row(
        m.task_identifier, m.payload, m.queue_name,
        case when m.run_at_given then m.run_at
          else p_from + p_starts[width_bucket(m.id, (select p_ids))] * interval '1 microsecond' end,
        m.max_attempts, null, m.priority,
        case when m.flags is not null then array(   -- as _add_admitted
            select f from unnest(m.flags) f where not _is_own_flag(f)) end
          || _ticket(m.id, p_admission, m.partition_id, null,
            _trace_text(m.traceparent, m.created_at, m.run_at, m.run_at_given))
      ):::GRAPHILE_WORKER_SCHEMA.job_spec order by m.id) as jobs,
      bool_or(m.queue_name is not null or m.flags is not null) as waits_elsewhere
    from (
      select x.*, _portion(sum(octet_length(x.payload::text)) over (
        order by x.id rows between unbounded preceding and 1 preceding)) as portion
      from moved x) m
    group by m.portion order by m.portion
  )
  select coalesce(array_agg(row(
    j.id, _staged_id_text(j.flags)::bigint, true, false, j.revision, s.waits_elsewhere, false
  )::admission), '{}') into v_admissions
  from specs s cross join lateral :GRAPHILE_WORKER_SCHEMA.add_jobs(s.jobs) j;
  return v_admissions;
end
$$;
