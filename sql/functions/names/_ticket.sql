-- The flag of a job that was staged: its staged id, its admission as _admission_now tells it, and marks of its partition and
-- its key. By the partition's mark a worker sees whether it works out the same partition; by the rest see _is_ours.
create or replace function :DISPATCH_POLICY_SCHEMA._ticket(
  staged_id bigint, admission bigint, partition_id uuid, job_key text
) returns text language sql stable as $$   -- as the operator ||, or it would not be inlined
  select 'dispatch_policy:' || staged_id || '@' || admission || '#' || coalesce(left(partition_id::text, 8), '')
    || case when job_key is null then '' else '.' || :DISPATCH_POLICY_SCHEMA._key_mark(job_key) end;
$$;
