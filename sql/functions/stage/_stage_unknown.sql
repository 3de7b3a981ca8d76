-- Adds the jobs of a staging call for whose tasks the calling process knows no policy. Another process may have declared
-- one: such jobs are staged, as add_jobs stages them. The others go to Graphile Worker.
--
--   p_jobs, p_payloads   as _stage_plain takes them
create or replace function _stage_unknown(p_jobs json, p_mode text, p_payloads text[])
returns setof staging language plpgsql as $$
declare
  v_is_known boolean;
  v_task text;
  v_expires_at timestamptz;
  v_debounced text;
  v_places int[];   -- of the jobs in the caller's input
  v_specs :GRAPHILE_WORKER_SCHEMA.job_spec[];
  v_debounces json[];
begin
  select coalesce(bool_or(t.policy_id is not null), false), min(j.task) filter (where j.expires_at is not null),
    min(j.expires_at), min(j.task) filter (where j."maxWait" is not null)
  into v_is_known, v_task, v_expires_at, v_debounced
  from _job_records(p_jobs) j
  left join policy_tasks t on t.task_identifier = j.task;
  if not v_is_known then
    if v_expires_at is not null then
      perform _refuse_expiry(v_task, v_expires_at);
    end if;
    if v_debounced is not null then
      perform _refuse_debounce(v_debounced);
    end if;
    return query select s.* from _stage_plain(p_jobs, p_mode, p_payloads) s;
    return;
  end if;
  select array_agg(j.n order by j.place), array_agg(row(j.task, j.payload, j."queueName",
    case when j."maxWait" is null then j."runAt" end, j."maxAttempts"::smallint, j."jobKey", j.priority::smallint, j.flags):::GRAPHILE_WORKER_SCHEMA.job_spec
    order by j.place),
    case when v_debounced is not null then array_agg(case when j."maxWait" is not null
      then json_build_object('waitSeconds', j.wait, 'maxWaitSeconds', j."maxWait") end order by j.place) end
  into v_places, v_specs, v_debounces
  from (
    select row_number() over () as place, p.* from _plain_records(p_jobs, p_payloads) p
  ) j;
  return query
  select v_places[s.n], s.staged, s.id, s.task_identifier, s.queue_name, s.run_at, s.max_attempts, s.job_key, s.priority,
    s.flags, s.created_at, s.policy, s.partition, s.shard, s.job, s.admitted
  from _stage_specs(v_specs, p_mode, null, (
    select max(j.traceparent) from _job_records(p_jobs) j),   -- one call has one trace context
    array(select j.expires_at from _job_records(p_jobs) j), v_debounces) s;
end
$$;
