-- Partitions that wait for limiters: who is called when there is room, and when somebody looks again.

-- The limiters whose waiters a pass looks at. At most `p_most` have a freed row, the oldest first. As many have a time that
-- has come, and as many have new shares (_with_new_shares). Those that others have locked (`p_locked`) have to wait.
-- An explicit tick ignores the ahead bound, so it looks at those who wait for it, whatever room there is.
create or replace function _limiters_to_look_at(
  p_policy policies, p_most int, p_locked bigint[], p_now timestamptz, p_bounded boolean
) returns bigint[] language plpgsql stable as $$
declare
  v_ids bigint[] := array(
    select f.limiter_id from (
      select x.limiter_id, x.id from freed x
      where x.policy_id = (p_policy).id and x.limiter_id <> all (p_locked) order by x.id limit p_most + 1000
    ) f
    group by f.limiter_id order by min(f.id) limit p_most);
  v_timed_ids bigint[] := array(
    select l.id from limiters l
    where l.policy_id = (p_policy).id and l.wake_at is not null and l.wake_at <= p_now
    order by l.wake_at limit p_most);
  v_others bigint[];
begin
  if (p_policy).shared_ids <> '{}' then   -- whoever comes first looks, and tells the others (_look_again)
    v_timed_ids := v_timed_ids || array(
      select l.id from limiters l
      where l.policy_id = any((p_policy).shared_ids) and l.wake_at is not null and l.wake_at <= p_now
      order by l.wake_at limit p_most);
  end if;
  v_others := v_timed_ids || _with_new_shares((p_policy).id, p_most);
  if v_others <> '{}' then
    v_ids := v_ids || array(select unnest(v_others) except select unnest(v_ids || p_locked));
  end if;
  if (p_policy).ahead_limiter_id <> all (v_ids || p_locked) and (case
    when p_bounded then _waits_in_vain((p_policy).id, (p_policy).ahead_limiter_id, p_now)
    else exists (select from partitions q where q.blocked_on = (p_policy).ahead_limiter_id) end) then
    v_ids := v_ids || (p_policy).ahead_limiter_id;
  end if;
  return v_ids;
end
$$;

-- Whether somebody waits for the ahead bound although there is room. The bound rises without a release, because a worker
-- pool comes, or because jobs finish faster. So it is checked instead of announced: a freed row would have to be written
-- under the limiter's lock, and a heartbeat waits for nobody.
create or replace function _waits_in_vain(
  p_policy_id int, p_limiter_id bigint, p_now timestamptz
) returns boolean language plpgsql stable as $$
begin
  return exists (
    select from limiters l
    where l.id = p_limiter_id
      and exists (select from partitions q where q.blocked_on = l.id)
      and (_ahead_cap(l, p_now)
        > l.in_flight + cardinality(_still_ending(l.ending))) is not false);
end
$$;

-- Calls those who wait for these limiters, for a pass (see _next_in_line). It goes on with `p_most` of them, in fair order. The
-- others are made ready: they wait for nothing but their turn.
--
--   p_looked_at   limiters
--   called        all that were called
--   chosen        those that the pass goes on with
create or replace function _call(
  p_policy policies, p_shard text, p_looked_at bigint[], p_most int, p_bounded boolean, p_now timestamptz,
  out called claimed[], out chosen uuid[]
) language plpgsql as $$
begin
  if (p_policy).shared or (p_policy).shared_ids <> '{}' then
    perform _pass_by_absent((p_policy).id, p_looked_at, p_now);
  end if;
  perform _refresh_keys(p_policy, p_looked_at, null, p_now);
  called := (_next_in_line(p_policy, p_shard, array(select l from limiters l where l.id = any(p_looked_at)), null,
    exists (select from overrides o where o.policy_id = (p_policy).id), p_bounded, p_most, p_now)).called;
  chosen := array(select c.id from unnest(called) c);
  if cardinality(called) > p_most then
    chosen := array(
      select c.id from unnest(called) c join partitions q on q.id = c.id
      order by c.first_jobs > 0 desc, q.fair_key, q.due_at limit p_most);
    update partitions q set denied_until = '-infinity', blocked_on = null, denied_reason = null, looked_at = p_now
    where q.id = any(array(select c.id from unnest(called) c where c.id <> all (chosen)));
  end if;
end
$$;

-- Takes partitions out of the lines of these shared limiters whose policies do not come (_absent_from), a thousand of each. They
-- are ready, and claimed when their policy is ticked. It skips locked ones.
create or replace function _pass_by_absent(p_policy_id int, p_limiter_ids bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_limiter limiters;
  v_absent int[];
begin
  for v_limiter in select l.* from limiters l where l.id = any(p_limiter_ids) and l.shared loop
    v_absent := array_remove(_absent_from(v_limiter, p_now), p_policy_id);
    continue when v_absent = '{}';
    update partitions q set denied_until = '-infinity', blocked_on = null, denied_reason = null
    where q.id = any(array(
      select p.id from partitions p
      where p.id = any(array(
          select x.id from (
            select y.id, y.policy_id from partitions y
            where y.blocked_on = v_limiter.id order by y.fair_key, y.due_at limit 1000) x
          where x.policy_id = any(v_absent)))
        and p.blocked_on = v_limiter.id
      order by p.id for no key update skip locked));
  end loop;
end
$$;

-- Locks the partitions of a policy among those that a shared limiter calls, of all policies: the `p_places` first, and those that
-- have been in line for longest (`p_longest`). For those that others have locked the policy's next ones go. Those whose jobs take
-- more slots than its cap are in no place (null: it has none).
create or replace function _own_in_line(
  p_policy_id int, p_shard text, p_limiter limiters, p_cap int, p_places int, p_longest int, p_now timestamptz
) returns claimed[] language plpgsql as $$
declare
  v_absent int[] := array_remove(_absent_from(p_limiter, p_now), p_policy_id);   -- others may have theirs locked
  v_oldest uuid[] := array(
    select q.id from partitions q
    where q.blocked_on = p_limiter.id and q.in_line_since <= _long_since(p_now)
      and _fits(q.limiter_ids, p_limiter.id, p_cap)
    order by q.in_line_since limit p_longest);
  v_first uuid[] := array(
    select x.id from (
      select q.id, q.policy_id from partitions q
      where q.blocked_on = p_limiter.id and q.policy_id <> all (v_absent)
        and _fits(q.limiter_ids, p_limiter.id, p_cap)
      order by q.fair_key, q.due_at limit p_places) x
    where x.policy_id = p_policy_id);
  v_line claimed[] := array(
    select _as_claimed(q, (q.id = any(v_oldest))::int) from partitions q
    where q.id = any(v_oldest || v_first) and q.policy_id = p_policy_id and q.blocked_on = p_limiter.id
      and (p_shard is null or q.shard = p_shard)
    order by q.id = any(v_oldest) desc, q.fair_key, q.due_at
    for no key update skip locked);
begin
  if cardinality(v_line) < cardinality(v_first) then
    v_line := v_line || array(
      select _as_claimed(q, 0) from partitions q
      where q.id = any(array(
          select x.id from (
            select y.id, y.policy_id from partitions y
            where y.blocked_on = p_limiter.id and _fits(y.limiter_ids, p_limiter.id, p_cap)
            order by y.fair_key, y.due_at limit p_places + 1000) x
          where x.policy_id = p_policy_id and x.id <> all (v_oldest || v_first)))
        and q.blocked_on = p_limiter.id and (p_shard is null or q.shard = p_shard)
      order by q.fair_key, q.due_at limit cardinality(v_first) - cardinality(v_line)
      for no key update skip locked);
  end if;
  return v_line;
end
$$;

-- Whether a policy leaves places at a shared limiter although its partitions stand among the first: others have them locked. It
-- keeps its freed row then, as old as that is, and after a second it loses these places (_absent_from).
create or replace function _leaves_places(p_policy_id int, p_limiter_id bigint, p_cap int, p_places int, p_decided uuid[])
returns boolean language plpgsql as $$
begin
  if not exists (
    select from (
      select q.policy_id from partitions q
      where q.blocked_on = p_limiter_id and _fits(q.limiter_ids, p_limiter_id, p_cap)
      order by q.fair_key, q.due_at limit p_places) x
    where x.policy_id = p_policy_id)
    or exists (select from partitions q where q.id = any(p_decided) and p_limiter_id = any(q.limiter_ids)) then
    return false;
  end if;
  insert into freed (policy_id, limiter_id, at)
  select p_policy_id, p_limiter_id, coalesce(min(f.at), clock_timestamp()) from freed f
  where f.policy_id = p_policy_id and f.limiter_id = p_limiter_id;
  return true;
end
$$;

-- The caps of these partitions at which others wait. Where jobs take several slots, some may be free, for the first in line too few:
-- a pass calls that one beside those that have just got work, or they would take its slots one by one.
create or replace function _lines_beside(p_partition_ids uuid[], p_but bigint[]) returns bigint[] language plpgsql stable as $$
begin
  return array(
    select l.id from limiters l
    where l.id = any(_limiters_of(p_partition_ids)) and l.id <> all (p_but) and not l.by_tokens and l.kind <> 'ahead'
      and exists (select from partitions q where q.blocked_on = l.id and q.id <> all (p_partition_ids)));
end
$$;

-- What shared limiters have left for the partitions that a pass has claimed, once partitions of other policies have what is
-- theirs: of all jobs of both, in the order of their virtual times, those of others that have room. They are told already, or
-- there is a time (_look_again). Their part (`kept`) is written back with the rest.
create or replace function _keep_for_others(
  p_policy policies, p_claimed claimed[], p_limiters limiters[], p_rooms room_before[], p_now timestamptz
) returns room_before[] language plpgsql as $$
declare
  v_limiter limiters;
  v_room room_before;
  v_kept float8;
begin
  foreach v_limiter in array p_limiters loop
    continue when not v_limiter.shared;
    for v_at in 1..cardinality(p_rooms) loop
      v_room := p_rooms[v_at];
      continue when v_room.id <> v_limiter.id or v_room.rate <= 0 or least(v_room.tokens, v_room.slots) <= 0
        or v_room.slots = 2147483647;
      v_kept := _places_of_others(p_policy, p_claimed, v_limiter, v_room, p_now);
      continue when v_kept = 0;
      v_room.kept := v_kept;
      v_room.slots := v_room.slots - v_kept;
      v_room.tokens := v_room.tokens - v_kept;
      v_room.rises_at := least(v_room.rises_at, p_now + interval '1 second');
      p_rooms[v_at] := v_room;
    end loop;
  end loop;
  return p_rooms;
end
$$;

-- How many slots or tokens of a shared limiter others are to have, see _keep_for_others. As in _rank, the jobs of a partition
-- follow each other in virtual time. A bound on their number comes from the level below which so many jobs are: up to a level, a
-- partition has level * weight - decayed jobs, and no more than it has. The sums are numeric, so that those that have no more
-- leave nothing.
create or replace function _places_of_others(
  p_policy policies, p_claimed claimed[], p_limiter limiters, p_room room_before, p_now timestamptz
) returns float8 language plpgsql stable as $$
declare
  v_places int := _room_for_waiters(p_room, false);
  v_absent int[] := array_remove(_absent_from(p_limiter, p_now), (p_policy).id);
  v_oldest uuid[];
  v_others uuid[];
begin
  v_oldest := array(
    select q.id from partitions q
    where q.blocked_on = p_limiter.id and q.in_line_since <= _long_since(p_now)
      and _fits(q.limiter_ids, p_limiter.id, p_room.cap)
    order by q.in_line_since limit _places_by_wait(p_policy, p_room));
  v_others := array(
    select q.id from partitions q
    where q.policy_id <> (p_policy).id and q.policy_id <> all (v_absent) and q.id = any(v_oldest || array(
      select x.id from partitions x
      where x.blocked_on = p_limiter.id and x.policy_id <> all (v_absent)
        and _fits(x.limiter_ids, p_limiter.id, p_room.cap)
      order by x.fair_key, x.due_at limit v_places)));
  if v_others = '{}' then
    return 0;
  end if;
  return (
    with part as materialized (
      select q.id, q.policy_id <> (p_policy).id as is_other, coalesce(c.first_jobs > 0, q.id = any(v_oldest)) as goes_first,
        case when p_limiter.by_tokens then q.head_cost else _takes(q.limiter_ids, p_limiter.id) end as cost, q.weight / e.work as weight,
        least(greatest(q.staged, 1), v_places) as jobs,
        case when d.decayed < e.work / 1000 then 0 else d.decayed / e.work end as decayed
      from partitions q
      join policies p on p.id = q.policy_id
      left join unnest(p_claimed) c on c.id = q.id
      cross join lateral (select coalesce(_work_of(p, q.mean_work), 1) as work) e
      cross join lateral (select _decayed(q.decayed_admits, q.decayed_at, p.half_life, p_now) as decayed) d
      where q.id = any(v_others || array(select x.id from unnest(p_claimed) x where p_limiter.id = any(x.limiter_ids)))
        and _fits(q.limiter_ids, p_limiter.id, p_room.cap)
    ),
    level as materialized (
      select coalesce(min(x.level)::float8, 'Infinity') as vt from (
        select lead(e.at) over w as until, case when sum(e.weight) over w > 0 then greatest(
          e.at, (v_places + (select count(*) from part) + sum(e.less) over w) / sum(e.weight) over w) end as level
        from (select p.id, p.jobs, p.decayed::numeric as decayed, p.weight::numeric as weight from part p) p
        cross join lateral (values
          (p.decayed / p.weight, p.weight, p.decayed),   -- from this level on it has jobs, from that one on no more
          ((p.decayed + p.jobs) / p.weight, -p.weight, -p.decayed - p.jobs)) e (at, weight, less)
        window w as (order by e.at, p.id rows unbounded preceding)) x
      where x.level <= x.until
    ),
    job as (
      select p.is_other, p.cost, sum(p.cost) over in_order - p.cost as before
      from part p cross join level v
      cross join lateral generate_series(
        1, least(p.jobs, greatest(1, floor(v.vt * p.weight - p.decayed + 1e-6)))::int) n
      window in_order as (
        order by n > 1 or not p.goes_first, (p.decayed + n) / p.weight, p.id rows unbounded preceding)
    )
    select coalesce(sum(least(j.cost, r.room - j.before)), 0)
    from job j cross join (select coalesce(p_room.tokens, p_room.slots) as room) r
    where j.is_other and j.before < r.room);
end
$$;

-- Whether others are to have some of the room of a shared limiter, which the caller has locked and may have changed in memory. If
-- as many partitions of this policy stand first as there is room for, they are not, whoever of this policy goes.
create or replace function _is_of_others(p_policy policies, p_limiter limiters, p_now timestamptz) returns boolean
language plpgsql stable as $$
declare
  v_room room_before := _room_for_few(p_limiter, true, true, null, p_now);
begin
  return exists (
    select from (
      (select q.policy_id from partitions q
        where q.blocked_on = p_limiter.id and _fits(q.limiter_ids, p_limiter.id, v_room.cap)
        order by q.fair_key, q.due_at limit _room_for_waiters(v_room, false))
      union all
      (select q.policy_id from partitions q
        where q.blocked_on = p_limiter.id and q.in_line_since <= _long_since(p_now)
          and _fits(q.limiter_ids, p_limiter.id, v_room.cap)
        order by q.in_line_since limit _places_by_wait(p_policy, v_room))
    ) x
    where x.policy_id <> (p_policy).id);
end
$$;

-- Locks the partitions that these limiters call, of those that wait for them: as many of each as it may have room for, in fair
-- order, and at most `p_most`. It skips locked ones. Every tenth place of a limiter goes to the partition that has been in line
-- for longest. That one's next job goes before others in its pass. So do jobs of a later class at its places (_class_turns).
--
-- The danger: cheap jobs would use each token that a dearer one waits for. The cure: a shared throttle calls nobody behind the
-- first one whose next job its tokens do not reach. Of slots, it calls that one as well: in the ranking it keeps all behind it from
-- those that are free. One that takes more than there are at all is passed by.
--
--   p_shard    call those of this shard alone; null: of any
--   p_but      for this limiter nobody waits; null: for each somebody may
--   full_ids   limiters that have no room
create or replace function _next_in_line(
  p_policy policies, p_shard text, p_limiters limiters[], p_but bigint, p_is_overridden boolean, p_bounded boolean, p_most int,
  p_now timestamptz,
  out called claimed[], out full_ids bigint[]
) language plpgsql as $$
declare
  v_limiter limiters;
  v_room room_before;
  v_places int;
  v_longest int;
  v_line claimed[];
  v_one claimed;
  v_turns uuid[];
  v_jobs int[];
  v_reached int;
  v_cost float8;   -- of the next jobs up to this one
  v_cap int;       -- of slots that jobs take several of
begin
  called := '{}'; full_ids := '{}';
  foreach v_limiter in array p_limiters loop
    continue when v_limiter.id = p_but;
    v_room := _room_for_few(v_limiter, p_is_overridden, p_bounded, null, p_now);
    v_places := least(_room_for_waiters(v_room, (p_policy).fair_by_work), p_most);
    if v_places = 0 then
      full_ids := full_ids || v_room.id;
      continue;
    end if;
    v_line := '{}';
    v_cap := case when ((p_policy).by_cost or v_limiter.shared) and v_room.tokens is null and v_room.slots < 2147483647
      then v_room.cap end;
    v_longest := least(_places_by_wait(p_policy, v_room), v_places);
    if v_limiter.shared then
      v_line := _own_in_line((p_policy).id, p_shard, v_limiter, v_cap, v_places, v_longest, p_now);
    elsif v_longest > 0 then
      v_line := array(
        select _as_claimed(q, 1) from partitions q
        where q.blocked_on = v_room.id and (p_shard is null or q.shard = p_shard) and q.in_line_since <= _long_since(p_now)
          and _fits(q.limiter_ids, v_room.id, v_cap)
        order by q.in_line_since limit v_longest
        for no key update skip locked);
    end if;
    if (p_policy).class_shares is not null then
      select array_agg(t.id), array_agg(t.jobs) into v_turns, v_jobs from _class_turns(p_policy, p_shard, v_room, p_now) t;
      v_line := (array(
        select _as_claimed(q, v_jobs[array_position(v_turns, q.id)]) from partitions q
        where q.id = any(v_turns) and q.blocked_on = v_room.id and _fits(q.limiter_ids, v_room.id, v_cap)
          and q.id <> all (array(select c.id from unnest(v_line) c)) order by q.fair_key
        for no key update skip locked) || v_line)[:v_places];
    end if;
    if not v_limiter.shared then
      v_line := v_line || array(
        select _as_claimed(q, 0) from partitions q
        where q.blocked_on = v_room.id and (p_shard is null or q.shard = p_shard)
          and (v_line = '{}' or q.id <> all (array(select c.id from unnest(v_line) c)))
          and _fits(q.limiter_ids, v_room.id, v_cap)
        order by q.fair_key, q.due_at limit v_places - cardinality(v_line)
        for no key update skip locked);
    end if;
    if v_room.tokens is not null and v_room.breadth > 0 then
      v_reached := 0; v_cost := 0;
      foreach v_one in array v_line loop
        v_cost := v_cost + (select q.head_cost from partitions q where q.id = v_one.id);
        exit when not _lets_through(v_room.tokens, case when v_reached = 0 then v_room.capacity else 'Infinity' end, v_cost);
        v_reached := v_reached + 1;
      end loop;
      v_line := v_line[:v_reached];
    elsif v_cap is not null then
      v_reached := 0; v_cost := 0;
      foreach v_one in array v_line loop
        v_reached := v_reached + 1;
        v_cost := v_cost + _takes(v_one.limiter_ids, v_room.id);
        exit when v_cost > v_room.slots;
      end loop;
      v_line := v_line[:v_reached];
    end if;
    called := called || v_line;
  end loop;
end
$$;

-- Whose turn it is at the next places of a limiter that are a later class's (_class_places), of those that wait for it: how many
-- jobs of which partition go before all others, by virtual time within the class.
create or replace function _class_turns(p_policy policies, p_shard text, p_room room_before, p_now timestamptz)
returns table (id uuid, jobs int) language plpgsql stable rows 5 as $$
#variable_conflict use_column
declare
  v_room float8 := case when p_room.slots is not null then p_room.slots - case when p_room.reserved_for is null then 0 else p_room.reserved end
    else greatest(_jobs_through(p_room.tokens, 'Infinity', (   -- others may cost other
      select q.head_cost from partitions q where q.blocked_on = p_room.id order by q.fair_key, q.due_at limit 1)), 1) end;
  v_places int[] := _class_places((p_policy).class_shares, p_room.admitted, v_room);
  v_unit int;
begin
  for v_class in 1 .. coalesce(cardinality(v_places), 0) loop
    if (p_policy).by_cost and p_room.tokens is null then
      v_unit := _places_at_once(p_room, (
        select _takes(q.limiter_ids, p_room.id) from partitions q
        where q.blocked_on = p_room.id and q.fair_key >= _class_from(v_class) and q.fair_key < _class_from(v_class + 1)
          and _fits(q.limiter_ids, p_room.id, p_room.cap)
        order by q.fair_key, q.due_at limit 1));
      v_places := _class_places((p_policy).class_shares, p_room.admitted / v_unit,
        (p_room.admitted + least(v_room, 1000)::int) / v_unit - p_room.admitted / v_unit);
    end if;
    continue when v_places[v_class] = 0;
    return query
    with part as materialized (
      select q.id, q.weight / e.work as weight, least(greatest(q.staged, 1), v_places[v_class]) as jobs,
        case when d.decayed < e.work / 1000 then 0 else d.decayed / e.work end as decayed   -- as _fair_key
      from partitions q
      cross join lateral (select coalesce(_work_of(p_policy, q.mean_work), 1) as work) e
      cross join lateral (select _decayed(q.decayed_admits, q.decayed_at, (p_policy).half_life, p_now) as decayed) d
      where q.blocked_on = p_room.id and (p_shard is null or q.shard = p_shard)
        and q.fair_key >= _class_from(v_class) and q.fair_key < _class_from(v_class + 1)
      order by q.fair_key, q.due_at limit v_places[v_class]
    )
    select j.id, count(*)::int from (
      select p.id from part p cross join lateral generate_series(1, p.jobs) n
      order by (p.decayed + n) / p.weight, p.id limit v_places[v_class]) j
    group by j.id;
  end loop;
end
$$;

-- How many waiters a limiter may have room for. The costs of their jobs decide how many a throttle lets go: this says how
-- many to look at. It is one more than there are tokens: a pass looks at that one to know when its tokens are there. If jobs
-- count by their work, some more are called. A partition that is called alone would be ranked alone, and use all the room.
-- These come on top of a real slot only: beside one that is reserved, they would be denied and called again without end.
create or replace function _room_for_waiters(
  l room_before, fair_by_work boolean
) returns int language sql immutable as $$
  select greatest(least(case
    when (l).slots is not null then least((l).slots, 1000) - case when (l).reserved_for is null then 0 else (l).reserved end
      + case when fair_by_work and (l).slots > case when (l).reserved_for is null then 0 else (l).reserved end then 10 else 0 end
    when (l).breadth = 0 then 1   -- its numbers changed: its partition works out its time anew
    when (l).rate <= 0 then 0
    else _jobs_through((l).tokens, 'Infinity', 1) + 1 end, 1000), 0)::int;
$$;

-- How many of a limiter's next places go by wait, see _longest_first.
create or replace function _places_by_wait(policy policies, l room_before) returns int language sql stable as $$
  select case when ((l).slots < 2147483647 or (l).rate > 0) is not true then 0
    when (policy).by_cost and (l).tokens is null then _slots_by_wait(policy, l)
    else _longest_first(policy, (l).admitted, coalesce((l).slots, _jobs_through((l).tokens, 'Infinity', 1) + 1)) end;
$$;

-- The same of slots that jobs take several of.
create or replace function _slots_by_wait(p_policy policies, p_room room_before) returns int language plpgsql stable as $$
declare
  v_unit int := _places_at_once(p_room, (
    select _takes(q.limiter_ids, p_room.id) from partitions q
    where q.blocked_on = p_room.id and q.in_line_since <= 'infinity'
      and _fits(q.limiter_ids, p_room.id, p_room.cap)
    order by q.in_line_since limit 1));
begin
  return _longest_first(p_policy, p_room.admitted / v_unit,
    (p_room.admitted + p_room.slots) / v_unit - p_room.admitted / v_unit);
end
$$;

-- How many slots count as one place where a job that takes `p_takes` may go before its turn: as many as it or the first in line
-- takes, whichever takes more.
--
-- The danger: each slot is a place. If jobs take ten, there is one place of a class or of who has waited for longest among those of
-- each job. So they always went first, and others never.
create or replace function _places_at_once(p_room room_before, p_takes int) returns int language plpgsql stable as $$
begin
  return greatest(1, p_takes, (
    select _takes(q.limiter_ids, p_room.id) from partitions q
    where q.blocked_on = p_room.id and _fits(q.limiter_ids, p_room.id, p_room.cap)
    order by q.fair_key, q.due_at limit 1));
end
$$;

-- Says when somebody looks again at the waiters of these limiters, which the caller has locked, now that its pass has decided.
-- That is at once if one has room, and somebody waits: those stand behind one that had no room elsewhere, or others have locked
-- them. Else it is at a time if that is known (of a shared throttle when there are enough tokens for the first one's next job),
-- or when there is a freed row. Returns at how many nobody has to look at once.
--
-- The danger: a tick whose `now` is not the clock's goes by other overrides: one that has not begun, or one that is over. The
-- times that it writes would be too late for those who go by the clock. The cure: it leaves earlier times, and the rows that say
-- that there may be room. Not if its `now` is a day or more from the clock: then it replays another time, and nobody beside it
-- goes by the clock.
--
-- The places of a shared limiter may be of other policies: those are told (_tell_in_line), and not this one, which has left them
-- what is theirs. They tell this one in turn. If they do not come, there is a look after a second. The pass of a shared limit gives
-- limiters the numbers that its declaration found locked.
--
--   p_decided   partitions that the pass has decided about
--   p_bounded   false: the ahead bound is looked at again while somebody waits for it; its rest is left to bounded passes
create or replace function _look_again(
  p_policy policies, p_shard text, p_limiter_ids bigint[], p_decided uuid[], p_bounded boolean, p_now timestamptz
) returns int language plpgsql as $$
declare
  -- read before the room is: what is freed later keeps its row
  v_freed bigint[] := array(
    select f.id from freed f where f.policy_id = (p_policy).id and f.limiter_id = any(p_limiter_ids));
  v_limiter limiters;
  v_room room_before;
  v_first record;   -- in line
  v_cap int;        -- of slots that jobs take several of: who takes more is passed by
  v_is_found boolean;
  v_places int;
  v_is_told boolean;
  v_wake_at timestamptz;
  v_left bigint[] := '{}';
  v_passed_by int := 0;
  v_is_overridden boolean := exists (select from overrides o where o.policy_id = (p_policy).id);
  v_turns boolean := false;   -- an override does, between the clock and `p_now`
begin
  if (p_policy).shared then
    perform _change_shared(p_policy, p_limiter_ids, p_now);
  end if;
  if v_is_overridden then
    v_turns := exists (
      select from overrides o
      cross join lateral (select least(p_now, clock_timestamp()) as first, greatest(p_now, clock_timestamp()) as last) t
      where o.policy_id = (p_policy).id and t.last - t.first < interval '1 day'
        and ((o.from_at > t.first and o.from_at <= t.last) or (o.until_at > t.first and o.until_at <= t.last)));
  end if;
  foreach v_limiter in array array(select l from limiters l where l.id = any(p_limiter_ids)) loop
    v_room := _room_for_few(v_limiter, v_is_overridden, p_bounded, null, p_now);
    if v_room.kind = 'ahead' and not p_bounded then
      if exists (
        select from partitions q
        where q.blocked_on = v_room.id and (p_shard is null or q.shard = p_shard) and q.id <> all (p_decided)) then
        v_left := v_left || v_room.id;
      end if;
      continue;
    end if;
    v_is_found := false;
    v_cap := case when ((p_policy).by_cost or v_limiter.shared) and v_room.tokens is null and v_room.slots < 2147483647
      then v_room.cap end;
    if (p_policy).class_shares is not null then
      select q.id, q.head_cost, q.limiter_ids into v_first from partitions q
      where q.id = any(array(select t.id from _class_turns(p_policy, null, v_room, p_now) t))
        and _fits(q.limiter_ids, v_room.id, v_cap)
      order by q.fair_key limit 1;
      v_is_found := found;
    end if;
    if not v_is_found and (v_room.tokens is not null or v_cap is not null) and _places_by_wait(p_policy, v_room) > 0 then
      select q.id, q.head_cost, q.limiter_ids into v_first from partitions q
      where q.blocked_on = v_room.id and q.in_line_since <= _long_since(p_now)
        and _fits(q.limiter_ids, v_room.id, v_cap)
      order by q.in_line_since limit 1;
      v_is_found := found;
    end if;
    if not v_is_found then
      select q.id, q.head_cost, q.limiter_ids into v_first from partitions q
      where q.blocked_on = v_room.id and _fits(q.limiter_ids, v_room.id, v_cap)
      order by q.fair_key, q.due_at limit 1;
    end if;
    if v_room.tokens is null then
      v_wake_at := case when v_room.ending > 0 and v_first.id is not null then p_now + interval '10 milliseconds'
        -- who begins to wait later does not ask again when the cap rises
        else least(case when v_room.reserved_for is not null then v_room.reserved_until end, v_room.rises_at) end;
      -- or nobody: the first takes more than are free, and those behind it wait with it
      if v_first.id is not null and _room_for_waiters(v_room, false) >= (case when v_cap is null then 1
        else _takes(v_first.limiter_ids, v_room.id) end) then
        v_places := _room_for_waiters(v_room, false);
        v_is_told := v_limiter.shared and _tell_in_line(v_limiter, (p_policy).id, v_places, p_now);
        if v_limiter.shared then
          v_wake_at := least(v_wake_at, p_now + interval '1 second');   -- if this one comes no more, others do
        end if;
        if v_limiter.shared and _leaves_places((p_policy).id, v_room.id, v_room.cap, v_places, p_decided) then
          v_passed_by := v_passed_by + 1;
        -- one that this pass has left waiting here waits behind a job that takes more: passes would look at it without end
        elsif not v_is_told and not ((p_policy).by_cost and v_first.id = any(p_decided)) then
          v_left := v_left || v_room.id;
        end if;
      end if;
    elsif v_room.breadth = 0 then
      v_wake_at := null;   -- its partition has its own time
      if exists (select from partitions q where q.blocked_on = v_room.id and q.id <> all (p_decided)) then
        v_left := v_left || v_room.id;
      end if;
    else
      v_wake_at := case when v_first.id is not null then _throttle_ready_at(
        v_room.tokens, v_room.rate, v_room.per, v_room.capacity, v_room.spent, v_room.calendar, v_first.head_cost, p_now) end;
      if v_wake_at <= p_now then   -- it is not for this pass to call it, or others have locked it
        v_places := _room_for_waiters(v_room, false);
        v_is_told := v_limiter.shared and _tell_in_line(v_limiter, (p_policy).id, v_places, p_now);
        v_wake_at := p_now + case when v_is_told then interval '1 second' else interval '50 milliseconds' end;
        if v_limiter.shared and _leaves_places((p_policy).id, v_room.id, v_room.cap, v_places, p_decided) or not v_is_told then
          v_passed_by := v_passed_by + 1;
        end if;
      end if;
    end if;
    if v_turns then
      v_wake_at := least(v_wake_at, (select l.wake_at from limiters l where l.id = v_room.id));
    end if;
    perform _look_at_waiters(v_room.id, v_wake_at, v_room.pools);
  end loop;
  delete from freed f where f.policy_id = (p_policy).id and f.id = any(v_freed) and not v_turns;
  insert into freed (policy_id, limiter_id) select (p_policy).id, u.id from unnest(v_left) u (id);
  return cardinality(p_limiter_ids) - cardinality(v_left) - v_passed_by;
end
$$;
