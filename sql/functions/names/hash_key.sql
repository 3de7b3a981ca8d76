-- A partition key from any JSON value, such as a whole payload: the same 32 hex digits as hashKey gives in JavaScript.
--
--   select dispatch_policy.hash_key('{"country": "nz"}');
create or replace function :DISPATCH_POLICY_SCHEMA.hash_key(value jsonb) returns text
language plpgsql immutable strict set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  return left(encode(sha256(convert_to(:DISPATCH_POLICY_INTERNAL._canonical_json(hash_key.value), 'UTF8')), 'hex'), 32);
end
$$;
