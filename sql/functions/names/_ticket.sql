-- The flag of a job that was staged: its staged id, its admission as _admission_now tells it, and the mark of its partition.
-- A job with a key has a mark of that as well, and the time, in microseconds since 1970. By the partition's mark a worker
-- sees whether it works out the same partition; for the rest see _is_ours.
--
-- A traced job has its _trace_text as well, after the third dot. Any other flag ends before it.
create or replace function _ticket(
  staged_id bigint, admission bigint, partition_id uuid, job_key text, trace text
) returns text language sql volatile as $$   -- as clock_timestamp(), or it would not be inlined
  select 'dispatch_policy:' || staged_id || '@' || admission || '#' || coalesce(_mark_of(partition_id), '')
    || case when job_key is null then '' else '.' || _key_mark(job_key)
      || '.' || (extract(epoch from clock_timestamp()) * 1000000)::bigint end
    || coalesce(case when job_key is null then '...' else '.' end || trace, '');
$$;
