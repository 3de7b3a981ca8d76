-- Adds what a sweep repaired, by kind, to the totals.
create or replace function _count_repairs(p_repaired jsonb) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  insert into repairs as r (kind, repaired)
  select e.key, e.value::bigint from jsonb_each_text(p_repaired) e order by e.key
  on conflict (kind) do update set repaired = r.repaired + excluded.repaired;
$$;
