-- The job Graphile Worker has under a key, as far as the next one of that key is concerned.
--
--   is_kept    the next one gets its row: it waits. One that runs, or has failed for good, keeps its row without the key
--   is_native   it came past this package, and has not failed for good. A staged job is older than such a one, unless it
--     was added when that one was there. By times it cannot be told: rescheduling a row changes them
create or replace function :DISPATCH_POLICY_SCHEMA._job_of_key(p_key text)
returns table (id bigint, revision int, is_kept boolean, is_native boolean) language sql stable rows 1 as $$
  select j.id, j.revision, j.locked_at is null and j.attempts < j.max_attempts,
    not :DISPATCH_POLICY_SCHEMA._is_ours(j.flags, j.created_at)
      and not (j.locked_at is null and j.attempts >= j.max_attempts)
  from :GRAPHILE_WORKER_SCHEMA.jobs j where j.key = p_key limit 1;
$$;
