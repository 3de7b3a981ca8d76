-- Stages jobs, and passes on those of tasks without a policy, in the caller's transaction and with the caller's rights. If
-- the calling process knows no policy of a task, the policies in the database count.
--
-- If the policy's backlog has no bound, it only inserts: into staged_jobs, arrivals and keyless_jobs. It updates no shared
-- row, and takes no lock that another session can wait for. There are two exceptions. A job key that is already staged
-- locks that one row, and `unsafe_dedupe` first locks and deletes expired jobs of its job keys. Both lock the rows of a batch
-- in the order of their job keys. A bounded backlog is counted as well (_make_room). A strict one waits for a turn, and a
-- full one may drop staged jobs.
--
-- The danger: two calls have jobs of the same two policies, each another one's first, and wait for each other's rows. The
-- cure: the batches of a call are staged in the order of their policies.
--
--   p_batches   json array, one batch per policy (and one, with policy null, for tasks without a policy here):
--     { "policy": text, "version": int,
--       "partitions": [{ "key", "shard", "context", "weight", "limits" }], with "like" instead of "limits" if the limits
--         are those of another partition: its place
--       "jobs": [{ "n": place in the caller's input, "task", "p": index into partitions, "payload", "queueName",
--                  "runAt" or "wait" (seconds), "maxAttempts", "jobKey", "priority", "flags", "cost",
--                  "expiresAt" or "expiresAfter" (seconds from when it is due), "byDeadline", "deadline",
--                  of a debounced job "wait" and "maxWait" (seconds from the first add of its key) }] }
--   p_payloads  of jobs without a policy, as _stage_plain takes them
--   p_mode      replace, preserve_run_at or unsafe_dedupe, as Graphile Worker's
create or replace function _stage(p_batches json, p_mode text, p_payloads text[] default null)
returns setof staging language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_batch record;
begin
  if p_mode not in ('replace', 'preserve_run_at', 'unsafe_dedupe') then
    raise exception 'Invalid job_key_mode value %, expected ''replace'', ''preserve_run_at'' or ''unsafe_dedupe''.', p_mode
      using errcode = 'GWBKM';
  end if;
  -- each json text is read as seldom as possible: to read it once more took 100,000 jobs a twentieth of the call
  for v_batch in select b.* from json_to_recordset(p_batches) b (policy text, version int, partitions json, jobs json)
    order by b.policy
  loop
    if v_batch.policy is null then
      return query select s.* from _stage_unknown(v_batch.jobs, p_mode, p_payloads) s;
    else
      return query select s.* from :DISPATCH_POLICY_SCHEMA.enqueue(
        v_batch.policy, v_batch.version, v_batch.partitions, v_batch.jobs, p_mode) s;
    end if;
  end loop;
end
$$;
