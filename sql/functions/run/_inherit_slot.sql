-- A job that took the place of an admitted one, in its row under its key, has that one's slot where its own limiters are
-- among those that the slot counts for. It is an admission of its own then: the end of the job that was there gives
-- nothing back.
create or replace function :DISPATCH_POLICY_SCHEMA._inherit_slot(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_key text, p_job_id bigint, p_staged_id bigint, p_revision int
) returns boolean language plpgsql as $$
begin
  update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set
    staged_id = p_staged_id, admission = :DISPATCH_POLICY_SCHEMA._admission_now(), revision = p_revision,
    attempt = null, pool_id = null, started_at = null, missing_since = null
  from :DISPATCH_POLICY_SCHEMA._private_partitions p
  where f.job_id = p_job_id and p.id = f.partition_id
    and p.id = :DISPATCH_POLICY_SCHEMA._partition_id((p_policy).name, p_key)
    and f.limiter_ids @> array(
      select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
      where l.id = any(p.limiter_ids) and not l.by_tokens);
  return found;
end
$$;
