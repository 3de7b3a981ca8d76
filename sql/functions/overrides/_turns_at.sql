-- When an override next begins or ends after `p_at`. infinity: it has ended, or never ends.
create or replace function _turns_at(
  override overrides, p_at timestamptz
) returns timestamptz language sql immutable as $$
  select case when override.from_at > p_at then override.from_at when override.until_at > p_at then override.until_at
    else 'infinity' end;
$$;
