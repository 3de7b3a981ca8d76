-- Refuses jobs, because the backlog of their policy is full. `p_full` is what _fit returned: the error names the first
-- partition that is full by itself, else the policy.
create or replace function _raise_full(
  p_policy policies, p_full jsonb, p_pending_in_all int
) returns void language plpgsql as $$
begin
  raise exception using errcode = 'DPFUL', message = format(
    'dispatch_policy: the backlog of policy %L is full: %s', (p_policy).name, coalesce(
      (select format('%s of these jobs do not fit into partition %L: %s of at most %s are pending',
          t.over, t.key, t.pending, (p_policy).max_pending)
        from jsonb_to_recordset(p_full) t (key text, over int, pending int) where t.over > 0 order by t.key limit 1),
      format('%s of these jobs do not fit: %s of at most %s are pending',
        (select sum(t.dropped) from jsonb_to_recordset(p_full) t (dropped int)), p_pending_in_all, (p_policy).max_pending_in_all)));
end
$$;
