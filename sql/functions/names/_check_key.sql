-- Returns the key, and raises if it is too long.
create or replace function _check_key(p_key text) returns text language plpgsql immutable as $$
begin
  if octet_length(p_key) > 1024 then
    raise exception 'dispatch_policy: partition key of % bytes, expected at most 1024: %...', octet_length(p_key),
      left(p_key, 60) using errcode = 'DPKEY';
  end if;
  return p_key;
end
$$;
