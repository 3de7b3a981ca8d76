-- Takes back the overrides of a key, of a context (`"where"`), or of all keys: the one in force, and those to come.
-- `dry_run` only counts, as that of set_limit.
create or replace function :DISPATCH_POLICY_SCHEMA.clear_limit(
  policy text, gate text, key text default null, reason text default null, by text default null,
  "where" jsonb default null, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language sql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select * from _clear_limit(
    clear_limit.policy, clear_limit.gate, clear_limit.key, clear_limit.reason, clear_limit.by, null,
    clear_limit."where", clear_limit.dry_run);
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.clear_limit from public;
