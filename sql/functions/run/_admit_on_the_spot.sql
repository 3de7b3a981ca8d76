-- Admits one job that Graphile Worker has already started, if nothing stops its partition and all its limiters have room.
-- It also needs that nobody else waits: no other job of the partition, and no partition for one of its limiters. It does
-- not wait for a partition that a tick has locked.
--
-- A job that took an admitted one's place needs no further slot where that one has its own. It pays its tokens.
create or replace function _admit_on_the_spot(
  p_policy policies, p_key text, p_job_id bigint, p_staged_id bigint, p_revision int,
  p_cost float8, p_now timestamptz
) returns boolean language plpgsql as $$
declare
  v_partition partitions;
  v_limiter_ids bigint[];
  v_limiters room_before[];
  v_occupied_ids bigint[];
  v_now timestamptz;
  v_shadow_denied jsonb;
begin
  select * into v_partition from partitions p
  where p.id = _partition_id((p_policy).name, p_key)
  for no key update skip locked;
  if v_partition.id is null then
    return false;
  end if;
  v_limiter_ids := _limiters_of(array[v_partition.id]);
  perform _lock_limiters(v_limiter_ids);
  v_now := coalesce(p_now, clock_timestamp());
  v_limiters := array(
    select l from _rooms_of((p_policy).id, v_limiter_ids, v_now, false) l);
  v_occupied_ids := (   -- under these limiters' locks nobody frees them
    select f.limiter_ids from in_flight_jobs f where f.job_id = p_job_id);
  if greatest((p_policy).paused_until, v_partition.stopped_until) > v_now
    or v_partition.probing or v_partition.head_id < (select h.id from _no_head() h)
    or _known_outcomes(p_policy, array[v_partition.id]) = '{}'
    -- in strict order also a job counts that is not routed yet, or that waits for its retry
    or ((p_policy).job_order = 'strict' and (
      exists (
        select from staged_jobs s
        where s.partition_id = v_partition.id and s.id <> p_staged_id and s.due)
      or exists (
        select from _waiting_heads(array[v_partition.id]) h where h.id <> p_staged_id)))
    or exists (select from partitions q where q.blocked_on = any(v_limiter_ids))
    or exists (
      select from unnest(v_limiter_ids) u (id)
      left join unnest(v_limiters) l on l.id = u.id
      where l.id is null
        or _lacks_room(   -- two slots are as good as any number, and one more still is a number
          least(l.slots, 2) + case when l.id = any(v_occupied_ids) then 1 else 0 end, l.reserved_for, l.tokens, l.capacity, l.rate,
          v_partition.id, p_cost))
  then
    return false;
  end if;
  select c.shadow_denied into v_shadow_denied from _charge(
    p_policy, _claimed(array[v_partition.id]), v_limiters,
    array[row(null, p_staged_id, v_partition.id, 1, 0, v_now, p_cost, 0, false, true, false)
      ::candidate],
    array[row(p_job_id, p_staged_id, true, true, p_revision, false, true)::admission],
    v_now, false, nextval('ticks')) c;
  perform _count_pass((p_policy).id, '{}', '{}', 1, '{}', v_shadow_denied, 0,
    case when (p_policy).load_kept_for is null then '{}' else array[
      row((p_policy).id, v_partition.id, v_now, 1, p_cost, 1, 0, 0)::load_change] end,
    v_now, null);
  return true;
end
$$;
