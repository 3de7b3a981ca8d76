-- Locks and returns up to so many staged jobs of a partition, in the order in which they go. Those that are due come first,
-- then those that become due, then those whose limits are still to be worked out. Rows that another session has locked are
-- skipped.
--
--   p_ids   only these; null: all
create or replace function _lock_staged_in(
  p_policy text, p_key text, p_ids bigint[], p_count int
) returns bigint[] language plpgsql volatile as $$
declare
  v_id uuid := _partition_id(p_policy, p_key);
  v_keyless bigint[];
  v_ids bigint[];
begin
  v_keyless := array(   -- these first, as _keyless_jobs locks them
    select k.staged_id from keyless_jobs k
    join staged_jobs s on s.id = k.staged_id and s.partition_id is null
    where k.policy = p_policy and k.partition_key = p_key and (p_ids is null or s.id = any(p_ids))
    order by k.staged_id limit p_count for update of k, s skip locked);
  v_ids := array(
    select s.id from staged_jobs s
    where s.partition_id = v_id and s.due and (p_ids is null or s.id = any(p_ids))
    order by s.priority, s.run_at, s.id limit p_count for update skip locked);
  v_ids := v_ids || array(
    select s.id from staged_jobs s
    where s.partition_id = v_id and not s.due and (p_ids is null or s.id = any(p_ids))
    order by coalesce(s.retry_at, s.run_at), s.id limit p_count - cardinality(v_ids) for update skip locked);
  return (v_ids || v_keyless)[1:p_count];
end
$$;
