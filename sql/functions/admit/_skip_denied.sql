-- Drops the due jobs of partitions whose gates deny them, except for parked jobs (`whenBusy: "skip"`).
create or replace function :DISPATCH_POLICY_SCHEMA._skip_denied(p_policy text, p_partition_ids uuid[])
returns void language plpgsql as $$
declare
  v_skipped int;
  v_ids bigint[];
begin
  v_ids := array(
    select x.id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs x
    where x.due and x.parked_job_id is null and x.partition_id = any(array(
      select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
      where q.id = any(p_partition_ids) and (q.denied_reason in ('throttle_empty', 'rate_zero', 'max_zero')
        or (q.denied_reason like '%\_full' and q.denied_reason <> 'ahead_full'))))
    for update skip locked);
  perform :DISPATCH_POLICY_SCHEMA._record_removed(v_ids, 'dropped');
  with skipped as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.id = any(v_ids) returning s.partition_id
  ),
  recorded as (
    insert into :DISPATCH_POLICY_SCHEMA._private_drops (policy, partition_id, key, reason, jobs)
    select p_policy, q.id, q.key, 'busy', count(*) from skipped s
    join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = s.partition_id and q.id = any(p_partition_ids)
    group by q.id, q.key
  ),
  -- The partition waits no longer. Jobs that stay (locked, or parked) are found when it is looked at again.
  woken as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions q set denied_until = '-infinity', blocked_on = null,
      staged = q.staged - n.jobs
    from (select s.partition_id, count(*)::int as jobs from skipped s group by s.partition_id) n where q.id = n.partition_id
  )
  select count(*) into v_skipped from skipped;
  perform :DISPATCH_POLICY_SCHEMA._count_pending(p_policy, -v_skipped);
end
$$;
