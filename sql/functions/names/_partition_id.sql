-- The id of a partition, known before anybody has made it. The length keeps apart two pairs of policy and key that read the
-- same when written together.
create or replace function :DISPATCH_POLICY_SCHEMA._partition_id(policy text, key text) returns uuid
language sql immutable as $$
  select md5(length(policy)::text || ':' || policy || key)::uuid;   -- without ::text it would not be inlined
$$;
