-- Deprecated: the former name of release_slots, which it calls. It takes the same arguments.
create or replace function :DISPATCH_POLICY_SCHEMA.release(
  job_id bigint, reason text default null, by text default null
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
begin
  return query select s.matched, s.changed from :DISPATCH_POLICY_SCHEMA.release_slots(
    release.job_id, release.reason, release.by) s;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.release from public;
