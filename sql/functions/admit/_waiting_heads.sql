-- Which of these partitions wait in strict order, and until when: their first job has begun, and is not due. It failed and
-- waits for its retry, or Graphile Worker refused it. An operator's admission may have let several begin. The first of them
-- counts.
--
-- The danger: a parked job may have ended past its policy, or a newer job of its key may be staged. It will never run, and
-- its partition waited for its whole back-off. The cure: such a job does not count. One that somebody retried by hand still
-- does. The newer job's arrival wakes the partition, and a sweep does if nothing arrives.
create or replace function _waiting_heads(p_partition_ids uuid[])
returns table (partition_id uuid, id bigint, until_at timestamptz) language sql stable rows 10 as $$
  select u.id, h.id, h.until_at from unnest(p_partition_ids) u (id)
  cross join lateral (
    select s.id, coalesce(s.retry_at, s.run_at) as until_at from staged_jobs s
    where s.partition_id = u.id and not s.due
      and (s.parked_job_id is null or (   -- one look at the index for each
        select true from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.id = s.parked_job_id and (j.locked_at is not null or j.attempts < j.max_attempts)
          and (_is_parked(s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags)
            or _is_row_of(s.parked_revision, s.id, j.revision, j.flags))
          and (select true from staged_jobs n where n.job_key = j.key limit 1) is null
        limit 1))
      and s.sort_at = '-infinity' order by s.id limit 1
  ) h
  where not exists (
    select from staged_jobs s
    where s.partition_id = u.id and s.due and s.sort_at = '-infinity' and s.id < h.id);
$$;
