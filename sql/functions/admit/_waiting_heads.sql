-- Which of these partitions wait in strict order, and until when: their first job has begun, and is not due. It failed and
-- waits for its retry, or Graphile Worker refused it. An operator's admission may have let several begin. The first of them
-- counts.
create or replace function :DISPATCH_POLICY_SCHEMA._waiting_heads(p_partition_ids uuid[])
returns table (partition_id uuid, id bigint, until_at timestamptz) language sql stable rows 10 as $$
  select u.id, h.id, h.until_at from unnest(p_partition_ids) u (id)
  cross join lateral (
    select s.id, coalesce(s.retry_at, s.run_at) as until_at from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.partition_id = u.id and not s.due and s.sort_at = '-infinity' order by s.id limit 1
  ) h
  where not exists (
    select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.partition_id = u.id and s.due and s.sort_at = '-infinity' and s.id < h.id);
$$;
