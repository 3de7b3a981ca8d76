-- These staged jobs with their payloads, in the order of their ids: one _portion of them.
create or replace function _exported(p_ids bigint[])
returns setof :DISPATCH_POLICY_SCHEMA.exported_job language plpgsql volatile as $$
declare
  v_parked :DISPATCH_POLICY_SCHEMA.db_job[] := _parked_rows(array(
    select s.parked_job_id from staged_jobs s
    where s.id = any(p_ids) and s.parked_job_id is not null));
begin
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
    where s.id = any(p_ids)
  ) j
  left join lateral _policy_and_key_of(j.partition_id) k on true
  left join keyless_jobs w on w.staged_id = j.id
  where _portion(j.bytes_before) = 0 and not j.is_behind
  order by j.id;
end
$$;
