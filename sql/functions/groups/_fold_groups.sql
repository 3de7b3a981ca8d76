-- Adds up what has ended of these job groups, and adds the callbacks of those in which all jobs have ended. It locks the groups'
-- rows, so of two transactions that end the last two jobs the second sees that both have ended.
--
-- The danger: an application may end a job in a transaction that stays open, and has the group's row locked. Releases and
-- passes would wait for it. The cure: this waits for a moment, and leaves such a group. What ended of it is appended by then,
-- and the next end of the group adds it up, or a sweep.
--
-- A callback that cannot be added stops no release: the group keeps the error, and a sweep tries again.
create or replace function _fold_groups(p_ids bigint[]) returns void language plpgsql volatile
set lock_timeout = '100ms' as $$
declare
  v_ids bigint[];
  v_group groups;
begin
  begin
    v_ids := array(
      select g.id from groups g where g.id = any(p_ids) order by g.id for no key update);
  exception when lock_not_available or deadlock_detected then
    v_ids := array(
      select g.id from groups g
      where g.id = any(p_ids) order by g.id for no key update skip locked);
  when serialization_failure then   -- the caller's snapshot is older than the group
    v_ids := '{}';
  end;
  -- a later statement than the lock: it must see what others have committed meanwhile
  with ended as (
    delete from group_ends e where e.group_id = any(v_ids) returning e.*
  ),
  tally as materialized (
    select e.group_id as id,
      coalesce(sum(e.jobs) filter (where e.outcome = 'succeeded'), 0) as succeeded,
      coalesce(sum(e.jobs) filter (where e.outcome = 'failed'), 0) as failed,
      coalesce(sum(e.jobs) filter (where e.outcome = 'removed'), 0) as removed,
      coalesce(sum(e.jobs) filter (where e.outcome = 'dropped'), 0) as dropped,
      coalesce(sum(e.jobs) filter (where e.outcome = 'replaced'), 0) as replaced,
      coalesce(sum(e.jobs) filter (where e.outcome = 'gone'), 0) as gone
    from ended e group by e.group_id
  )
  update groups g set succeeded = g.succeeded + t.succeeded, failed = g.failed + t.failed,
    removed = g.removed + t.removed, dropped = g.dropped + t.dropped, replaced = g.replaced + t.replaced,
    gone = g.gone + t.gone
  from tally t where g.id = t.id;
  for v_group in
    select g.* from groups g where g.id = any(v_ids) and g.jobs_left = 0 order by g.id
  loop
    begin
      perform _end_group(v_group);
    exception when others then
      update groups g set error = sqlerrm where g.id = v_group.id;
    end;
  end loop;
end
$$;
