-- Whether jobs wait for a process that has the policy and works out their partitions.
create or replace function :DISPATCH_POLICY_SCHEMA._is_to_key(p_policy text) returns boolean language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
begin
  return exists (
    select from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k
    where k.policy = p_policy and k.retry_at <= clock_timestamp());
end
$$;
