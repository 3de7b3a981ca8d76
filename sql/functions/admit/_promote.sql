-- Marks jobs of the claimed partitions as due whose time has come. It skips locked rows. The head of a partition moves down
-- to them. At most 1,000 per partition and pass. Returns whether there were any.
create or replace function _promote(p_partition_ids uuid[], p_now timestamptz)
returns boolean language plpgsql as $$
declare
  v_cts tid[] := array(
    select x.ctid from unnest(p_partition_ids) u (id)
    cross join lateral (
      select s.ctid from staged_jobs s
      where s.partition_id = u.id and not s.due and coalesce(s.retry_at, s.run_at) <= p_now
      order by coalesce(s.retry_at, s.run_at) limit 1000
      for update skip locked
    ) x);
begin
  if v_cts = '{}' then
    return false;
  end if;
  with due as (
    update staged_jobs s set due = true, retry_at = null
    where s.ctid = any(v_cts)
    returning s.partition_id, s.priority, s.run_at, s.id
  ),
  first as (
    select distinct on (d.partition_id) d.* from due d order by d.partition_id, d.priority, d.run_at, d.id
  )
  update partitions p
  set head_priority = f.priority, head_run_at = f.run_at, head_id = f.id
  from first f
  where p.id = f.partition_id
    and (f.priority, f.run_at, f.id) < (p.head_priority, p.head_run_at, p.head_id);
  return true;
end
$$;
