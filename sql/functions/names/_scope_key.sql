-- The scope key that a limit names, or the one that follows from the partition or the policy.
create or replace function _scope_key(scope text, own_key text, partition_key text) returns text
language sql immutable as $$
  select case scope when 'partition' then partition_key when 'policy' then '' else own_key end;
$$;
