-- Two lengths of time as one in words: "3-6 min", "50 s to 3 min".
create or replace function _interval_in_words(p_from float8, p_until float8)
returns text language plpgsql immutable as $$
declare
  v_from text := _in_words(p_from);
  v_until text := _in_words(p_until);
begin
  return case when v_from = v_until then v_until
    when split_part(v_from, ' ', 2) = split_part(v_until, ' ', 2) then split_part(v_from, ' ', 1) || '-' || v_until
    else v_from || ' to ' || v_until end;
end
$$;
