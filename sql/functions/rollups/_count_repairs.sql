-- Adds what a sweep repaired, by kind, to the totals.
create or replace function :DISPATCH_POLICY_SCHEMA._count_repairs(p_repaired jsonb) returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
  insert into :DISPATCH_POLICY_SCHEMA._private_repairs as r (kind, repaired)
  select e.key, e.value::bigint from jsonb_each_text(p_repaired) e order by e.key
  on conflict (kind) do update set repaired = r.repaired + excluded.repaired;
$$;
