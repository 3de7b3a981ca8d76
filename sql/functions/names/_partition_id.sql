-- The id of a partition, known before anybody has made it. The length keeps apart two pairs of policy and key that read the
-- same when written together.
--
-- Its body is parsed once, when it is made, and so names the same operators under any search_path.
create or replace function _partition_id(policy text, key text) returns uuid
language sql immutable return md5(length(policy)::text || ':' || policy || key)::uuid;   -- without ::text it would not be inlined
