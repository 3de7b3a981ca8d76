-- Adds changed caps of adaptive limiters to their minutes: the lowest of the minute, and the last. It is bounded: of each policy
-- and minute ten limiters have rows. Those that have one keep it. Then come those with the lowest caps.
--
--   p_changes   in the order in which they happened
create or replace function _fold_caps(
  p_changes cap_change[]
) returns void language plpgsql volatile as $$
begin
  with change as materialized (
    select c.policy_id, date_trunc('minute', c.at) as minute, c.gate, c.scope_key, min(c.cap) as lowest,
      (array_agg(c.cap order by c.ordinality desc))[1] as last
    from unnest(p_changes) with ordinality c group by 1, 2, c.gate, c.scope_key
  ),
  known as materialized (
    select c.*, exists (
      select from caps x
      where (x.policy_id, x.minute, x.gate, x.scope_key) = (c.policy_id, c.minute, c.gate, c.scope_key)) as has_row
    from change c
  ),
  placed as materialized (
    select k.*, row_number() over (
        partition by k.policy_id, k.minute, k.has_row order by k.lowest, k.gate, k.scope_key)
      + (select count(*) from caps x
        where (x.policy_id, x.minute) = (k.policy_id, k.minute)) as place
    from known k
  )
  insert into caps as x (policy_id, minute, gate, scope_key, lowest, last)
  select p.policy_id, p.minute, p.gate, p.scope_key, p.lowest, p.last from placed p
  where p.has_row or p.place <= 10
  order by p.policy_id, p.minute, p.gate, p.scope_key
  on conflict (policy_id, minute, gate, scope_key) do update set
    lowest = least(x.lowest, excluded.lowest), last = excluded.last;
end
$$;
