-- Whether jobs wait for a process that has the policy and works out their partitions.
create or replace function _is_to_key(p_policy text) returns boolean language plpgsql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  return exists (
    select from keyless_jobs k
    where k.policy = p_policy and k.retry_at <= clock_timestamp());
end
$$;
