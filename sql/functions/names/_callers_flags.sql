-- The flags of a job without ours. Null: it has none.
create or replace function _callers_flags(flags jsonb) returns text[] language sql immutable as $$
  select array_agg(f.flag order by f.flag) from jsonb_object_keys(flags) f (flag)
  where not _is_own_flag(f.flag);
$$;
