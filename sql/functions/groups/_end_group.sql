-- Adds the callback of a job group whose jobs have all ended, and deletes the group. The payload gets the counts as "_group",
-- as Graphile Worker's crontab adds "_cron". Raises if the callback cannot be added, because the backlog is full or its job
-- key is remembered (`uniqueFor`).
--
-- If its task has no policy any more, it goes to Graphile Worker, where nothing expires.
create or replace function _end_group(p_group groups)
returns void language plpgsql volatile as $$
declare
  v_job record;
  v_run_at timestamptz;
  v_added record;
begin
  delete from groups g where g.id = (p_group).id;
  select j.* into v_job from json_to_record((p_group).callback) j (
    identifier text, payload jsonb, "queueName" text, "runAt" timestamptz, wait float8, "maxAttempts" smallint, "jobKey" text,
    priority smallint, flags text[], "expiresAt" timestamptz, "expiresAfter" float8, traceparent text);
  v_run_at := coalesce(v_job."runAt", now() + make_interval(secs => v_job.wait));
  select s.id, s.policy, s.staged and s.job is not null as is_remembered into v_added from _stage_specs(
    array[row(v_job.identifier, (
        coalesce(nullif(v_job.payload, 'null'), '{}') || jsonb_build_object('_group', jsonb_build_object(
          'id', (p_group).id::text, 'total', (p_group).total, 'succeeded', (p_group).succeeded, 'failed', (p_group).failed,
          'removed', (p_group).removed, 'dropped', (p_group).dropped, 'replaced', (p_group).replaced,
          'gone', (p_group).gone)))::json,
      v_job."queueName", v_run_at, v_job."maxAttempts", v_job."jobKey", v_job.priority, v_job.flags
    ):::GRAPHILE_WORKER_SCHEMA.job_spec], 'replace', null, v_job.traceparent,
    case when exists (
      select from policy_tasks t where t.task_identifier = v_job.identifier)
      then array[coalesce(v_job."expiresAt", greatest(v_run_at, now()) + make_interval(secs => v_job."expiresAfter"))] end) s;
  if v_added.id is null then
    raise exception 'dispatch_policy: the backlog of policy % is full, and drops the callback of job group %',
      v_added.policy, (p_group).id using errcode = 'DPFUL';
  elsif v_added.is_remembered then
    raise exception 'dispatch_policy: policy % remembers the job key % of the callback of job group %',
      v_added.policy, v_job."jobKey", (p_group).id using errcode = 'DPFUL';
  end if;
end
$$;
