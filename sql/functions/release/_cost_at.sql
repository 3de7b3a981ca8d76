-- What these costs say of a gate: that of its name in `gates`, or else `cost`, which is for all. Null: nothing. It is an
-- expression, so that PostgreSQL inlines it.
create or replace function _cost_at(costs jsonb, gate text) returns float8 language sql immutable as $$
  select coalesce(costs #>> array['gates', gate], costs ->> 'cost')::float8;
$$;
