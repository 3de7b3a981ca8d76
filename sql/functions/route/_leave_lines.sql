-- A partition that is stopped gives up the slots that are reserved for it, and its place in the line of a shared throttle. Freed
-- rows tell those who wait there.
create or replace function _leave_lines(p_policy_id int, p_partition_id uuid, p_limiter_ids bigint[])
returns void language sql volatile as $$
  insert into freed (policy_id, limiter_id)
  select p_policy_id, l.id from limiters l
  where l.id = any(p_limiter_ids) and (l.reserved_for = p_partition_id or (l.by_tokens and l.breadth > 0));
$$;
