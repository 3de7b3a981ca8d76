-- The job Graphile Worker has under a key, as far as the next one of that key is concerned.
--
--   is_kept    the next one gets its row: it waits. One that runs, or has failed for good, keeps its row without the key
--   is_native   it came past this package, and has not failed for good. A staged job is older than such a one, unless it
--     was added when that one was there. By times it cannot be told: rescheduling a row changes them
create or replace function :DISPATCH_POLICY_SCHEMA._job_of_key(p_key text)
returns table (id bigint, revision int, is_kept boolean, is_native boolean) language sql stable rows 1 as $$
  select j.id, j.revision, j.locked_at is null and j.attempts < j.max_attempts,
    not (:DISPATCH_POLICY_SCHEMA._staged_id_of(j.flags) is not null
        or (j.locked_at is null and j.attempts >= j.max_attempts)
        or exists (   -- let in at its start: it failed, and its retry was parked or admitted
          select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
          where f.job_id = j.id and f.revision = j.revision and j.last_error is not null)
        or (j.last_error is not null and exists (
          select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.parked_job_id = j.id)))
  from :GRAPHILE_WORKER_SCHEMA.jobs j where j.key = p_key limit 1;
$$;
