-- Raises if a gate of a definition names a time zone that this server does not know. Node may know it all the same, from
-- newer data. Each pass of the policy would fail.
create or replace function _check_time_zones(p_definition jsonb)
returns void language plpgsql stable as $$
declare
  v_gate text;
  v_zone text;
begin
  for v_gate, v_zone in
    select g.value ->> 'name', split_part(g.value #>> '{constants,calendar}', ' ', 2)
    from jsonb_array_elements(p_definition -> 'gates') g
    where g.value #>> '{constants,calendar}' is not null
  loop
    begin
      perform now() at time zone v_zone;
    exception when invalid_parameter_value then
      raise exception 'dispatch_policy: policy %: gate %: timeZone is %, expected a zone of this server''s pg_timezone_names: update its time zone data, or name another zone',
        quote_literal(p_definition ->> 'name'), quote_literal(v_gate), quote_literal(v_zone) using errcode = 'DPARG';
    end;
  end loop;
end
$$;
