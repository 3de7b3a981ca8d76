-- Drops the jobs of claimed partitions that have expired, due or not. These are some 1,000 in all, and as many of each
-- partition that has such jobs. Returns the partitions that the pass goes on with. The caller has locked them.
--
-- A partition that may have more of them is left out. It stays eligible, and the next pass goes on with it. Otherwise a pass
-- after an outage would delete a whole backlog in one transaction, or admit what is late. The pass has limiters locked, and
-- a history makes each job dearer. With one, 50,000 took 2.5 s. It took 6 s where each partition had been held 100 times.
--
-- It skips rows that another session has locked. Such a row may be free when the pass admits it, so _add_admitted looks at
-- the time again.
create or replace function _expire(p_policy text, p_partition_ids uuid[], p_now timestamptz)
returns uuid[] language plpgsql volatile as $$
declare
  v_expiring uuid[];
  v_most int;
  v_ids bigint[];
  v_left_out uuid[];
begin
  -- usually there are none, and one look at the index shows that
  if not exists (
    select from staged_jobs s
    where s.partition_id = any(p_partition_ids) and s.expires_at <= p_now) then
    return p_partition_ids;
  end if;
  v_expiring := array(
    select u.id from unnest(p_partition_ids) u (id)
    cross join lateral (
      select from staged_jobs s
      where s.partition_id = u.id and s.expires_at <= p_now limit 1) x);
  v_most := ceil(1000.0 / greatest(cardinality(v_expiring), 1));
  v_ids := array(
    select x.id from unnest(v_expiring) u (id)
    cross join lateral (
      select s.id from staged_jobs s
      where s.partition_id = u.id and s.expires_at <= p_now
      order by s.expires_at limit v_most
      for update skip locked
    ) x);
  perform _record_removed(v_ids, 'dropped');
  with expired as (
    delete from staged_jobs s where s.id = any(v_ids) returning s.partition_id
  ),
  tally as materialized (
    select e.partition_id as id, count(*)::int as jobs from expired e group by e.partition_id
  ),
  recorded as (
    insert into drops (policy, partition_id, reason, jobs)
    select p_policy, t.id, 'expired', t.jobs from tally t
  ),
  counted as (
    update partitions q set
      staged = q.staged - t.jobs,
      -- one that a limiter has called, and that is left out
      denied_until = case when t.jobs >= v_most then '-infinity' else q.denied_until end,
      blocked_on = case when t.jobs < v_most then q.blocked_on end,
      denied_reason = case when t.jobs < v_most then q.denied_reason end
    from tally t where q.id = t.id
  )
  select coalesce(array_agg(t.id) filter (where t.jobs >= v_most), '{}') into v_left_out from tally t;
  perform _count_pending(p_policy, -cardinality(v_ids));
  return array(select u.id from unnest(p_partition_ids) u (id) where u.id <> all (v_left_out));
end
$$;
