-- Refuses an end that has passed: the call would change nothing, and its caller would not notice.
create or replace function _check_until(
  p_verb text, p_until timestamptz, p_now timestamptz, p_way_out text
) returns void language plpgsql immutable as $$
begin
  if p_until <= p_now then
    raise exception 'dispatch_policy: %: until is %, expected a time to come: by the database''s clock it is %; %',
      p_verb, p_until, p_now, p_way_out using errcode = 'DPARG';
  end if;
end
$$;
