-- Drops due jobs of partitions whose gates deny them, except for parked jobs (`whenBusy: "skip"`). These are some 1,000 in all,
-- and as many of each such partition, because the pass has limiters locked. Returns whether there may be more of them. Their
-- partitions stay eligible, and the next pass goes on with them.
create or replace function :DISPATCH_POLICY_SCHEMA._skip_denied(p_policy text, p_partition_ids uuid[])
returns boolean language plpgsql as $$
declare
  v_denied uuid[] := array(
    select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
    where q.id = any(p_partition_ids) and (q.denied_reason in ('throttle_empty', 'rate_zero', 'max_zero')
      or (q.denied_reason like '%\_full' and q.denied_reason <> 'ahead_full')));
  v_most int := ceil(1000.0 / greatest(cardinality(v_denied), 1));
  v_ids bigint[] := array(
    select x.id from unnest(v_denied) u (id)
    cross join lateral (
      select s.id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
      where s.partition_id = u.id and s.due and s.parked_job_id is null
      order by s.priority, s.run_at, s.id limit v_most
      for update skip locked
    ) x);
  v_more boolean;
begin
  perform :DISPATCH_POLICY_SCHEMA._record_removed(v_ids, 'dropped');
  with skipped as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.id = any(v_ids) returning s.partition_id
  ),
  tally as materialized (
    select s.partition_id as id, count(*)::int as jobs from skipped s group by s.partition_id
  ),
  recorded as (
    insert into :DISPATCH_POLICY_SCHEMA._private_drops (policy, partition_id, key, reason, jobs)
    select p_policy, q.id, q.key, 'busy', t.jobs from tally t
    join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = t.id and q.id = any(p_partition_ids)
  ),
  -- The partition waits no longer. Jobs that stay (locked, parked, or too many) are found when it is looked at again.
  woken as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions q set denied_until = '-infinity', blocked_on = null,
      staged = q.staged - t.jobs
    from tally t where q.id = t.id
  )
  select coalesce(bool_or(t.jobs >= v_most), false) into v_more from tally t;
  perform :DISPATCH_POLICY_SCHEMA._count_pending(p_policy, -cardinality(v_ids));
  return v_more;
end
$$;
