-- The sums of _waits_by as json: seconds by name.
create or replace function _waited_by(p_by text, waited jsonb) returns jsonb language sql immutable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select coalesce(jsonb_object_agg(s.name, s.seconds), '{}') from (
    select w.name, sum(w.seconds) as seconds from _waits_by(p_by, waited) w group by w.name
  ) s;
$$;
