-- Verbs: export.

-- Reads staged jobs with their payloads: by id, or all of a policy or partition. Nothing changes but the audit. A page has
-- at most `count` jobs, and ends after one _portion of payloads and errors, 8 MB. For the next page give the last id as
-- `after`, until there is none.
--
-- The way back is add_jobs: columns have the names of Graphile Worker's job_spec.
create or replace function :DISPATCH_POLICY_SCHEMA.export(
  policy text default null, partition text default null, ids bigint[] default null, after bigint default 0,
  count int default 500, reason text default null, by text default null
) returns setof :DISPATCH_POLICY_SCHEMA.exported_job language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_ids bigint[];
  v_parked :DISPATCH_POLICY_SCHEMA.db_job[];
  v_exported int;
begin
  perform _check_which('export', export.ids, export.policy, export.partition, export.count);
  if export.partition is not null then
    v_ids := array(
      select s.id from _staged_in(export.policy, export.partition) s
      where s.id > coalesce(export.after, 0) and (export.ids is null or s.id = any(export.ids))
      order by s.id limit export.count);
  else
    v_ids := array(
      select s.id from _staged_of(export.policy) s
      where s.id > coalesce(export.after, 0) and (export.ids is null or s.id = any(export.ids))
      order by s.id limit export.count);
  end if;
  v_parked := _parked_rows(array(
    select s.parked_job_id from staged_jobs s where s.id = any(v_ids) and s.parked_job_id is not null));
  return query
  select j.id, coalesce(k.policy, w.policy), coalesce(k.key, w.partition_key), j.task_identifier, j.payload,
    j.queue_name, j.run_at, j.max_attempts, j.job_key, j.priority, j.flags, j.created_at, j.attempts, j.last_error,
    j.expires_at
  from (
    select s.id, s.partition_id, s.task_identifier, s.run_at, s.priority::int as priority, s.created_at, s.expires_at,
      case when s.parked_job_id is null then s.payload else x.payload end as payload,
      coalesce(s.queue_name, g.queue_name) as queue_name,
      case when s.parked_job_id is null then s.max_attempts else x.max_attempts - x.attempts end::int as max_attempts,
      coalesce(s.job_key, x.key) as job_key,
      nullif(array(
        select f from unnest(coalesce(s.flags, array(select jsonb_object_keys(x.flags)))) f
        where not _is_own_flag(f)), '{}') as flags,
      coalesce(x.attempts, 0) as attempts, x.last_error,
      sum(octet_length(coalesce(x.payload, s.payload)::text) + coalesce(octet_length(x.last_error), 0))
        over (order by s.id rows between unbounded preceding and 1 preceding) as bytes_before,
      coalesce(bool_or(x.payload is null) filter (where x.id is not null) over (order by s.id), false) as is_behind
    from staged_jobs s
    left join unnest(v_parked) x on x.id = s.parked_job_id
    left join lateral (   -- one look at the index for each, as in _add_admitted
      select y.queue_name from :GRAPHILE_WORKER_SCHEMA.jobs y where y.id = s.parked_job_id limit 1) g on true
    where s.id = any(v_ids)
  ) j
  left join lateral _policy_and_key_of(j.partition_id) k on true
  left join keyless_jobs w on w.staged_id = j.id
  where _portion(j.bytes_before) = 0 and not j.is_behind
  order by j.id;
  get diagnostics v_exported = row_count;
  if v_exported > 0 then
    perform _audit('export', export.policy, export.partition, null, null,
      jsonb_build_object('ids', export.ids, 'after', export.after), export.reason, export.by, v_exported, 0);
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.export from public;

-- The staged jobs of a partition, also of one that no router knows yet, and of those whose caller gave only the key. PostgreSQL
-- inlines this query, as that of _staged_of.
create or replace function _staged_in(p_policy text, p_key text)
returns setof staged_jobs language sql stable as $$
  select s.* from staged_jobs s
  where s.partition_id = any(array(select unnest(_lanes(p_policy, p_key, true))))
    or (s.partition_id is null and s.id in (
      select k.staged_id from keyless_jobs k where k.policy = p_policy and k.partition_key = p_key));
$$;

-- The rows of these parked jobs, which Graphile Worker has. None of another kind: a row that has its next job is no longer
-- parked. Those behind one _portion, by their staged ids, have neither payload nor error.
--
-- No public function of Graphile Worker shows a payload. So this reads what reschedule_jobs returns, and undoes it, as
-- _stored_payload does.
create or replace function _parked_rows(p_job_ids bigint[])
returns :DISPATCH_POLICY_SCHEMA.db_job[] language plpgsql volatile
set lock_timeout = '900ms' as $$   -- less than PostgreSQL takes to look for a deadlock: this call gives way
declare
  v_rows :DISPATCH_POLICY_SCHEMA.db_job[] := '{}';
begin
  if p_job_ids = '{}' then
    return v_rows;
  end if;
  begin
    v_rows := array(
      select row(j.id, j.job_queue_id, j.task_id, case when j.is_read then j.payload end, j.priority, j.run_at, j.attempts,
        j.max_attempts, case when j.is_read then j.last_error end, j.created_at, j.updated_at, j.key, j.revision, j.locked_at,
        j.locked_by, j.flags, null):::DISPATCH_POLICY_SCHEMA.db_job
      from (
        select j.*, _portion(sum(octet_length(j.payload::text) + coalesce(octet_length(j.last_error), 0))
          over (order by s.id rows between unbounded preceding and 1 preceding)) = 0 as is_read
        from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(p_job_ids) j
        join staged_jobs s on s.parked_job_id = j.id
        where _is_parked(s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags)
      ) j);
    raise exception using errcode = 'DPOUT';   -- the variable keeps its value
  exception when sqlstate 'DPOUT' then null;
  end;
  return v_rows;
end
$$;
