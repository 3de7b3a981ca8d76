-- Stages jobs, and passes on those of tasks without a policy, all in the caller's transaction. Append-only: inserts
-- into staged_jobs and arrivals, updates no shared row and takes no lock another session can wait for. (A job key
-- that is already staged touches that one row; several keys in one call in sorted order.)
--
--   p_batches   json array, one batch per policy (and one for all plain jobs, policy null):
--     { "policy": text, "version": int,
--       "partitions": [{ "key", "shard", "context", "weight", "limits" }],
--       "jobs": [{ "n": place in the caller's input, "task", "p": index into partitions, "payload", "queueName",
--                  "runAt", "maxAttempts", "jobKey", "priority", "flags", "cost" }] }
--   p_mode      replace, preserve_run_at or unsafe_dedupe, as Graphile Worker's
--
-- A policy that is switched off stages nothing: its jobs are passed on. What a full backlog drops has no id.
create or replace function :DISPATCH_POLICY_SCHEMA._stage(p_batches json, p_mode text)
returns setof :DISPATCH_POLICY_SCHEMA._private_staging language plpgsql as $$
#variable_conflict use_column
declare
  v_batch record;
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies;
  v_jobs json;
begin
  if p_mode not in ('replace', 'preserve_run_at', 'unsafe_dedupe') then
    raise exception 'Invalid job_key_mode value %, expected ''replace'', ''preserve_run_at'' or ''unsafe_dedupe''.', p_mode
      using errcode = 'GWBKM';
  end if;
  -- each json text is read as few times as can be: once more cost 100,000 jobs a twentieth of the call
  for v_batch in select b.* from json_to_recordset(p_batches) b (policy text, version int, partitions json, jobs json)
  loop
    select * into v_policy from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = v_batch.policy;
    if v_batch.policy is null or not v_policy.enabled then
      return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_plain(v_batch.jobs, p_mode) s;
    elsif v_policy.max_pending is null and v_policy.max_pending_in_all is null then
      return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_governed(
        v_batch.policy, v_batch.version, v_batch.partitions, v_batch.jobs, p_mode) s;
    else
      v_jobs := :DISPATCH_POLICY_SCHEMA._make_room(v_policy, v_batch.partitions, v_batch.jobs);
      return query
      select s.* from :DISPATCH_POLICY_SCHEMA._stage_governed(
        v_batch.policy, v_batch.version, v_batch.partitions, v_jobs, p_mode) s
      where json_array_length(v_jobs) > 0
      union all
      select j.n, true, null, j.task, j."queueName", coalesce(j."runAt", now()), coalesce(j."maxAttempts", 25),
        j."jobKey", coalesce(j.priority, 0), j.flags, now(), v_batch.policy,
        v_batch.partitions -> j.p ->> 'key', v_batch.partitions -> j.p ->> 'shard', null::json
      from :DISPATCH_POLICY_SCHEMA._job_records(v_batch.jobs) j
      where j.n not in (select k.n from :DISPATCH_POLICY_SCHEMA._job_records(v_jobs) k);
    end if;
  end loop;
end
$$;

-- One policy's part of it, whatever its backlog.
create or replace function :DISPATCH_POLICY_SCHEMA._stage_governed(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text
) returns setof :DISPATCH_POLICY_SCHEMA._private_staging language plpgsql as $$
begin
  if length(p_jobs::text) < 10000 and json_array_length(p_jobs) = 1 and p_jobs -> 0 ->> 'jobKey' is null then
    return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_one(p_policy, p_version, p_partitions, p_jobs) s;
  else
    return query select s.* from :DISPATCH_POLICY_SCHEMA._stage_batch(
      p_policy, p_version, p_partitions, p_jobs, p_mode) s;
  end if;
end
$$;
