-- Deletes overrides that ended more than a day ago, once every bucket has been filled since. Until then they say what a
-- bucket gained under them.
create or replace function _collect_overrides(p_now timestamptz) returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
begin
  with over as materialized (
    select o.* from overrides o where o.until_at < p_now - interval '1 day'
  ),
  -- once for each gate
  oldest as materialized (
    select g.*, (
      select min(l.refilled_at) from limiters l
      where l.policy_id = g.policy_id and l.gate = g.gate and (g.scope_key is null or l.scope_key = g.scope_key)
        and l.by_tokens and not _is_window(l.numbers)) as refilled_at
    from (select distinct o.policy_id, o.gate, o.scope_key from over o) g
  )
  delete from overrides o
  where o.id in (
    select x.id from over x
    join oldest g on (g.policy_id, g.gate) = (x.policy_id, x.gate) and g.scope_key is not distinct from x.scope_key
    where coalesce(g.refilled_at, 'infinity') >= x.until_at);
  get diagnostics v_removed = row_count;
  return v_removed;
end
$$;
