-- Whether a flag is one that this package gives to an admitted job. It is an expression, so that PostgreSQL inlines it.
create or replace function _is_own_flag(flag text) returns boolean language sql immutable as $$
  select flag like 'dispatch\_policy:%';
$$;
