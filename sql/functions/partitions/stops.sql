-- Partitions stop, go on, and leave the lines in which they waited.

-- Pauses or holds one partition. It waits for no limiter meanwhile, and gives up the slots reserved for it and its place in
-- the line of a shared throttle.
--
-- A partition that no job has had yet is not matched. The stop is stored, and waits for its first job.
create or replace function _stop_partition(
  p_policy text, p_partition text, p_paused_until timestamptz, p_held_until timestamptz, p_reason text, p_by text,
  out matched int, out changed int, out stored boolean
) language plpgsql as $$
declare
  v_policy policies := _policy_with_jobs(p_policy);
  v_id uuid := _partition_id(p_policy, p_partition);
  v_ids uuid[];
begin
  perform _check_key(p_partition);
  -- the router locks a partition's rows before it adds a lane, so what it adds is seen once they are locked here
  perform from partitions q where q.id = any(_lanes(p_policy, p_partition)) order by q.id for no key update;
  v_ids := _lanes(p_policy, p_partition);
  update partitions q set
    paused_until = coalesce(p_paused_until, q.paused_until), held_until = greatest(q.held_until, p_held_until),
    probing = q.probing or p_held_until is not null, denied_until = '-infinity', blocked_on = null, denied_reason = null,
    waiting_since = null,
    stopped_at = case
      when _tells_of_stop(q.held_until, q.paused_until, p_held_until, clock_timestamp())
      then clock_timestamp() else q.stopped_at end,
    stopped_by = case
      when _tells_of_stop(q.held_until, q.paused_until, p_held_until, clock_timestamp())
      then coalesce(p_by, session_user) else q.stopped_by end,
    stop_reason = case
      when _tells_of_stop(q.held_until, q.paused_until, p_held_until, clock_timestamp())
      then p_reason else q.stop_reason end
  where q.id = any(v_ids);
  select max((q.arrival_id > 0)::int) into matched from partitions q where q.id = any(v_ids);
  if matched is null then
    insert into arrivals (policy, partition_id, key, pause)
    values (p_policy, v_id, p_partition, jsonb_build_object(
      'until', p_paused_until, 'held', p_held_until, 'at', clock_timestamp(), 'by', coalesce(p_by, session_user),
      'reason', p_reason));
  end if;
  if matched is distinct from 1 then   -- a job may have come that the router has not seen
    matched := exists (
      select from arrivals a
      where a.policy = p_policy and a.partition_id = any(_lanes(p_policy, p_partition, true)) and a.limits is not null)::int;
  end if;
  changed := matched;
  perform _tell_stop(v_policy.id, u.id, case when p_held_until is null then 'paused' else 'held' end,
    coalesce(p_held_until, p_paused_until), clock_timestamp()) from unnest(v_ids) u (id);
  stored := matched = 0;
  perform _leave_lines(v_policy.id, q.id, q.limiter_ids) from partitions q where q.id = any(v_ids);
  perform _notify(p_policy);
end
$$;

-- Ends the stops of one partition, and the probe after a hold.
create or replace function _resume_partition(p_policy text, p_key text, out matched int, out changed int) language plpgsql as $$
declare
  v_policy policies := _policy(p_policy);
  v_ids uuid[] := _lanes(p_policy, p_key);
  v_unrouted int;
begin
  perform from partitions q where q.id = any(v_ids) order by q.id for no key update;
  v_ids := _lanes(p_policy, p_key);
  -- The partition may not exist yet, and its pause may be an arrival. If a router has it locked, this waits for the
  -- router, which never waits for this: it skips arrivals that are locked.
  delete from arrivals a where a.policy = p_policy and a.pause is not null and a.partition_id = any(v_ids);
  get diagnostics v_unrouted = row_count;
  v_ids := _lanes(p_policy, p_key);   -- it may exist by now, and be paused
  perform from partitions q where q.id = any(v_ids) order by q.id for no key update;
  with target as materialized (
    select q.id, q.key, q.stopped_until > '-infinity' or q.probing as stopped from partitions q where q.id = any(v_ids)
  ),
  resumed as (
    update partitions q set
      paused_until = '-infinity', held_until = '-infinity', breaker_until = '-infinity',
      stopped_at = null, stopped_by = null, stop_reason = null, breaker_at = null, breaker_reason = null,
      denied_until = case when q.probe_job_id is null then q.denied_until else '-infinity' end,
      denied_reason = case when q.probe_job_id is null then q.denied_reason end,
      probing = false, probe_job_id = null, failures = 0, failures_since = null
    from target t where q.id = t.id and t.stopped returning q.key
  )
  select (select count(distinct t.key) from target t) + v_unrouted, (select count(distinct r.key) from resumed r) + v_unrouted
  into matched, changed;
  perform _tell_stop(v_policy.id, u.id, k.reason, '-infinity', clock_timestamp())
  from unnest(v_ids) u (id) cross join (values ('paused'), ('held'), ('breaker_open')) k (reason);
end
$$;

-- A partition that is stopped gives up the slots that are reserved for it, and its place in the line of a shared throttle, or of
-- slots that jobs take several of. Freed rows tell those who wait there.
create or replace function _leave_lines(p_policy_id int, p_partition_id uuid, p_limiter_ids bigint[])
returns void language sql volatile as $$
  insert into freed (policy_id, limiter_id)
  select p_policy_id, l.id from limiters l
  where l.id = any(p_limiter_ids) and (l.reserved_for = p_partition_id or (_has_line(l) and (
    l.by_tokens or (select p.by_cost from policies p where p.id = p_policy_id))));
$$;

-- Whether partitions may wait behind another at a limiter although it has room: not at one that a partition has alone.
create or replace function _has_line(limiter limiters) returns boolean language sql immutable as $$
  select (limiter.breadth > 0 or limiter.laned) and limiter.kind <> 'ahead';
$$;

-- Policies are paused or switched off: passes look who stands behind their partitions in the lines of shared limits.
create or replace function _leave_shared_lines(p_policy_ids int[]) returns void language plpgsql as $$
declare
  v_owner_ids int[];
begin
  with told as (
    insert into freed (policy_id, limiter_id)
    select distinct l.policy_id, l.id from policies p
    join partitions q on q.policy_id = p.id and q.blocked_on is not null
    join limiters l on l.id = q.blocked_on and l.shared
    where p.id = any(p_policy_ids) and p.shared_ids <> '{}'
    returning policy_id
  )
  select array_agg(distinct t.policy_id) into v_owner_ids from told t;
  perform _notify(p.name) from policies p where p.id = any(v_owner_ids);
end
$$;

-- Wakes all partitions of a policy that is switched off: it has no limits to wait for. A locked one waits until a later step.
-- Until then its limiter keeps what would wake it, because the policy may be switched on before.
create or replace function _wake_all(
  p_policy policies, p_max int
) returns int language plpgsql as $$
declare
  v_woken int;
  v_limiter_ids bigint[];
  v_shards text[];
begin
  with woken as (
    update partitions p set denied_until = '-infinity', blocked_on = null, denied_reason = null
    where p.id = any(array(
      select q.id from partitions q
      where q.policy_id = (p_policy).id and q.denied_until > '-infinity' and q.due_at < 'infinity'
      order by q.id limit p_max for no key update skip locked))
    returning p.shard
  )
  select count(*), array_agg(distinct w.shard) into v_woken, v_shards from woken w;
  with idle as materialized (   -- one look at the index for each, in the deletion's snapshot
    select d.id from (
      select distinct f.limiter_id as id from freed f where f.policy_id = (p_policy).id
    ) d
    where (select true from partitions q where q.blocked_on = d.id limit 1) is null
  )
  delete from freed f
  where f.policy_id = (p_policy).id and (f.limiter_id in (select i.id from idle i)) is true;
  -- locked before it is looked at who waits: a pass may add a waiter and set wake_at
  v_limiter_ids := array(
    select x.id from limiters x
    where x.policy_id = (p_policy).id and x.wake_at is not null for no key update skip locked);
  perform _look_at_waiters(l.id, null, l.fewest_pools) from limiters l
  where l.id = any(v_limiter_ids) and (
    select true from partitions q where q.blocked_on = l.id limit 1) is null;
  if v_shards is not null then
    perform _notify_shards((p_policy).name, v_shards);
  end if;
  return v_woken;
end
$$;

-- Leaves a freed row for each limiter of a gate whose override starts, ends or is taken back, if a partition waits for it.
-- Returns whether it has to go on with the next step.
--
-- A tick may go by the numbers before, and make a partition wait that nobody sees yet. The tick has the limiter locked. So
-- this locks a limiter before it looks who waits, and tries again in later routing steps if it cannot.
--
-- An override of every key, or of a context, may concern 100,000 limiters, and the router's turn is locked meanwhile. So a
-- step goes through 1,000 limiters of the gate, by scope key. All such overrides of the gate go together, and one that comes
-- later waits until they are done. If one ends between two steps that announce its beginning, another round tells of that.
--
-- A tick that is ahead of the database's clock announces a time that is still to come. Others go by the numbers before, and
-- may make partitions wait once more. So the time is announced again when it has come by the database's clock.
create or replace function _announce_overrides(
  p_policy policies, p_now timestamptz
) returns boolean language plpgsql as $$
declare
  v_clock timestamptz := least(p_now, clock_timestamp());
  v_ids bigint[];
  v_round record;
  v_due bigint[];
  v_walked record;
  v_concerned record;
  v_late_ids bigint[];
  v_locked_ids bigint[];
begin
  update overrides o
  set announced_to = null, announce_at = least(o.announce_at, o.announce_again_at), announce_again_at = 'infinity'
  where o.id = any(array(
    select x.id from overrides x
    where x.policy_id = (p_policy).id and x.announce_again_at <= v_clock
      and least(x.announce_at, x.announce_again_at) <= v_clock   -- it follows from the line above: for the index
    order by x.id for update skip locked));
  v_ids := array(
    select o.id from overrides o
    where o.policy_id = (p_policy).id and (o.announce_at <= p_now or o.to_announce <> '{}')
    for update skip locked);
  select o.gate, o.announced_to as after, array_agg(o.id) as ids into v_round
  from overrides o
  where o.id = any(v_ids) and o.scope_key is null and o.announce_at <= p_now
  group by o.gate, o.announced_to order by o.announced_to is null, o.gate limit 1;
  select array_agg(w.id) as ids, max(w.scope_key) as last, count(*) = 1000 as goes_on into v_walked from (
    select l.id, l.scope_key from limiters l
    where l.policy_id = (p_policy).id and l.gate = v_round.gate and l.scope_key >= coalesce(v_round.after, '')
    order by l.scope_key limit 1000
  ) w;
  v_due := array(
    select o.id from overrides o
    where o.id = any(v_ids) and o.announce_at <= p_now and (o.scope_key is not null or o.id = any(v_round.ids)));
  -- in two lists of equal length: those of one key concern its limiter, the others limiters of their gate in this step
  with override as materialized (
    select o.* from overrides o where o.id = any(v_due)
  ),
  concerned as (
    select o.id as override_id, l.id from override o
    cross join lateral (
      select x.id from limiters x
      where x.policy_id = o.policy_id and x.gate = o.gate and x.scope_key = o.scope_key limit 1
    ) l
    union all
    select o.id, w.id from override o cross join unnest(v_walked.ids) w (id)
    where o.scope_key is null and o.context is null
    union all
    select o.id, l.id from limiters l
    join partitions q
      on q.id = _newest_lane((p_policy).id, l.scope_key)
    cross join unnest(_pairs_of(q.context)) u (pair)
    cross join lateral (
      select x.id, x.gate, x.context from overrides x
      where x.policy_id = (p_policy).id and x.context_pair = u.pair offset 0   -- as in _override_now
    ) o
    where l.id = any(v_walked.ids) and l.breadth = 0 and o.gate = l.gate and q.context @> o.context
      and o.id in (select unnest(v_due)) and exists (select from override x where x.context is not null)
  )
  select array_agg(c.override_id) as override_ids, array_agg(c.id) as limiter_ids into v_concerned from concerned c;
  v_late_ids := array(
    select u.id from overrides o cross join unnest(o.to_announce) u (id)
    where o.id = any(v_ids));
  v_locked_ids := _locked_limiters(v_concerned.limiter_ids || v_late_ids);
  insert into freed (policy_id, limiter_id)
  select (p_policy).id, u.id from (
    select unnest(v_concerned.limiter_ids) union (select unnest(v_late_ids) except select unnest(v_locked_ids))
  ) u (id)
  where exists (select from partitions q where q.blocked_on = u.id);
  -- If a gate is halted now, or not any more, its waiters have another of its reasons: the first thousand show it at once.
  with reason as materialized (
    select l.id, l.kind, l.tokens, l.rate, coalesce(l.share, l.cap) as cap
    from _rooms_of(array(
      select distinct u.id from unnest(v_concerned.limiter_ids) u (id)
      where exists (select from partitions q where q.blocked_on = u.id)), p_now, true) l
  ),
  waiter as materialized (
    select q.id, n.now from reason r
    join partitions q on q.blocked_on = r.id
    cross join lateral (select _lack_reason(
      r.kind, r.tokens, r.rate, r.cap, case when (p_policy).by_cost then _takes(q.limiter_ids, r.id) else 1 end) as now) n
    where q.denied_reason <> n.now limit 1000 for no key update of q skip locked
  )
  update partitions q set denied_reason = w.now from waiter w where q.id = w.id;
  with locked as materialized (
    select c.override_id, array_agg(c.limiter_id) as ids
    from unnest(v_concerned.override_ids, v_concerned.limiter_ids) c (override_id, limiter_id)
    where c.limiter_id in (select unnest(v_locked_ids)) group by c.override_id
  )
  update overrides o set
    to_announce = array(
      select l.id from limiters l
      where l.id = any(v_locked_ids) and l.id = any(o.to_announce || coalesce(
        (select k.ids from locked k where k.override_id = o.id), '{}'))),
    announced_to = case when o.id = any(v_round.ids) and v_walked.goes_on then v_walked.last
      when o.id = any(v_due) then null else o.announced_to end,
    announce_at = case
      when o.id <> all (v_due) or (o.id = any(v_round.ids) and v_walked.goes_on) then o.announce_at
      when o.until_at > p_now then o.until_at
      when o.id = any(v_round.ids) and v_round.after is not null and o.announce_at < o.until_at and not o.taken_back
        then o.until_at
      else 'infinity' end,
    announce_again_at = case when o.id = any(v_due) and _turns_at(o, v_clock) <= p_now
      then _turns_at(o, v_clock) else o.announce_again_at end
  where o.id = any(v_ids) and (o.id = any(v_due) or o.to_announce <> '{}');
  return exists (
    select from overrides o where o.id = any(v_ids) and o.announce_at <= p_now);
end
$$;
