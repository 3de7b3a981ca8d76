create or replace function :DISPATCH_POLICY_SCHEMA._partition_id(policy text, key text) returns uuid
language sql immutable as $$
  select md5(length(policy)::text || ':' || policy || key)::uuid;   -- without ::text it would not be inlined
$$;
