-- The key that a number in JSON gives, as keyText in JavaScript. Null: JavaScript does not keep all of its digits, so two
-- tenants might share a key. It keeps an integer up to 2^53 - 1, and any number of at most 15 digits.
create or replace function _number_key(p_number text) returns text language plpgsql immutable as $$
declare
  v_text text;
begin
  if p_number ~ '^(0|-?[1-9]\d{0,14})$' then   -- most are: it spares the subtransaction
    return p_number;
  end if;
  v_text := _number_text(p_number);
  return case when position('.' in v_text) = 0 or length(ltrim(translate(v_text, '-.', ''), '0')) <= 15 then v_text end;
end
$$;
