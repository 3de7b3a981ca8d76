-- The job of a partition that goes next: the one that it waits for in strict order, else the first that is due. Null: none is.
create or replace function _head_of(p_partition_id uuid) returns bigint
language sql stable as $$
  select coalesce(
    (select h.id from _waiting_heads(array[p_partition_id]) h
      join partitions q on q.id = p_partition_id
      join policies p on p.id = q.policy_id and p.job_order = 'strict'),
    (select n.id from _next_in_order(p_partition_id, 1) n));
$$;
