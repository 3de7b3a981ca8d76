-- An attempt that no worker can see to be as it was admitted starts under the slot that its job holds: notes which attempt
-- it is, and where it runs, so that the late end of an earlier one (of a pool that was counted dead, or that Graphile
-- Worker retried) gives nothing back. Returns partition, staged id and admission, and whether the attempt before was cut
-- short; no row: the job holds no slot. A job that has replaced another one in its row, under its key, does not hold that
-- one's: the row's revision tells.
--
-- Somebody may have taken attempts off the job, so that their numbers come twice. So from here on the slot counts as a new
-- admission's: the end of any earlier attempt names the one before, which is returned as well.
create or replace function :DISPATCH_POLICY_SCHEMA._start_attempt(
  p_job_id bigint, p_revision int, p_attempt int, p_pool_id text
) returns table (partition text, staged_id bigint, admission bigint, admitted bigint, resumed boolean) language sql volatile
set search_path = pg_catalog, pg_temp as $$
  with before as materialized (
    select f.job_id, f.attempt is not null and f.pool_id is null as resumed, f.admission
    from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
    where f.job_id = p_job_id and f.revision = p_revision for update
  )
  update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set
    admission = :DISPATCH_POLICY_SCHEMA._admission_now(), attempt = p_attempt, pool_id = p_pool_id, started_at = clock_timestamp()
  from before b, :DISPATCH_POLICY_SCHEMA._private_partitions q
  where f.job_id = b.job_id and q.id = f.partition_id
  returning q.key, f.staged_id, f.admission, b.admission, b.resumed;
$$;
