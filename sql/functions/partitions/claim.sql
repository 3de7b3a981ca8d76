-- A pass claims partitions in fair order.

-- Locks up to `p_claim` eligible partitions of the shard (null: of each shard), in fair order. Of equals, those that have
-- been eligible for longest go first.
--
-- Fair order needs an index, and an index knows nothing of now. So partitions that were eligible when somebody looked at them are
-- `ready`, and have that index. The others are found by their time. Those that a pass finds and does not claim, it makes ready.
-- So many may become due at one time that a pass does not find all. Then it also looks at some of the lowest fair keys among
-- those that wait for a time, or a heavy partition among them would be found many passes later.
--
-- Beside them it locks a tenth as many that have been in line for longest, which may never be among the first in fair order, and
-- as many of each later class as its share is. The pass decides as for all others whether they go.
--
-- `p_now` must be a parameter: compared with clock_timestamp(), the index is not used.
create or replace function _claim(
  p_policy policies, p_shard text, p_claim int, p_now timestamptz
) returns uuid[] language plpgsql as $$
declare
  v_shards text[] := case when p_shard is null
    then _shards((p_policy).id) else array[p_shard] end;
  v_long_since timestamptz := _long_since(p_now);
  v_of_classes int[];
  v_oldest int := case when (p_policy).half_life is null then 0 else (p_claim + 9) / 10 end;
  v_ids uuid[];
  v_lined_up uuid[];
begin
  perform _refresh_keys(p_policy, null, v_shards, p_now);
  if (p_policy).class_shares is not null then
    v_of_classes := array(
      select ceil(p_claim * (s.share - coalesce((p_policy).class_shares[s.class + 1], 0)) - 1e-9)
      from unnest((p_policy).class_shares) with ordinality s (share, class) order by s.class);
  end if;
  with timed as materialized (
    select c.* from unnest(v_shards) s (shard)
    cross join lateral (
      select p.id, p.fair_key, p.eligible_at from partitions p
      where p.policy_id = (p_policy).id and p.shard = s.shard and not p.ready
        and p.eligible_at < 'infinity' and p.eligible_at <= p_now
      order by p.eligible_at, p.visited limit p_claim + 1000
      for no key update skip locked
    ) c
  ),
  among_many as materialized (
    select p.id, p.fair_key, p.eligible_at from partitions p
    where p.id = any(array(
        select x.id from unnest(v_shards) s (shard)
        cross join lateral (
          select q.id, q.eligible_at from partitions q
          where q.policy_id = (p_policy).id and q.shard = s.shard and not q.ready and q.eligible_at < 'infinity'
          order by q.fair_key limit p_claim + 50
        ) x
        where x.eligible_at <= p_now and (select count(*) from timed) >= p_claim + 1000))
      and not p.ready and p.eligible_at <= p_now
    for no key update skip locked
  ),
  ready as materialized (
    select c.* from unnest(v_shards) s (shard)
    cross join lateral (
      select p.id, p.fair_key, p.eligible_at from partitions p
      where p.policy_id = (p_policy).id and p.shard = s.shard and p.ready and p.eligible_at <= p_now
      order by p.fair_key, p.eligible_at limit p_claim
      for no key update skip locked
    ) c
  ),
  oldest as materialized (
    select c.* from unnest(v_shards) s (shard)
    cross join lateral (
      select p.id from partitions p
      where p.policy_id = (p_policy).id and p.shard = s.shard and p.ready and p.in_line_since <= v_long_since
        and p.eligible_at <= p_now
      order by p.in_line_since limit v_oldest
      for no key update skip locked
    ) c
  ),
  later as materialized (   -- of each class with a share, which may never be among the first
    select c.* from unnest(v_shards) s (shard)
    cross join unnest(v_of_classes) with ordinality k (most, class)
    cross join lateral (
      select p.id from partitions p
      where p.policy_id = (p_policy).id and p.shard = s.shard and p.ready and p.eligible_at <= p_now
        and p.fair_key >= _class_from(k.class::int) and p.fair_key < _class_from(k.class::int + 1)
      order by p.fair_key, p.eligible_at limit k.most
      for no key update skip locked
    ) c
  ),
  chosen as materialized (
    (select c.id from (select * from timed union select * from among_many union all select * from ready) c
    order by c.fair_key, c.eligible_at limit p_claim * cardinality(v_shards))
    union
    select o.id from oldest o
    union
    select l.id from later l
  )
  select (select array_agg(c.id) from chosen c), array(select t.id from timed t where t.id not in (select c.id from chosen c))
  into v_ids, v_lined_up;
  if v_lined_up <> '{}' then
    update partitions p set looked_at = p_now, in_line_since = case when _class_of(1 / p.weight) = 0 then p_now end
    where p.id = any(v_lined_up);
  end if;
  return v_ids;
end
$$;

-- Works out again the fair keys of partitions that are in line and that nobody has looked at for a half-life, the oldest
-- first. It does so for a few of each limiter's line, or of each shard's if `p_limiter_ids` is null. It skips locked
-- ones.
create or replace function _refresh_keys(
  p_policy policies, p_limiter_ids bigint[], p_shards text[], p_now timestamptz
) returns void language plpgsql as $$
declare
  v_long_since timestamptz := p_now - make_interval(secs => (p_policy).half_life);
  v_ids uuid[];
begin
  if p_limiter_ids is not null then
    v_ids := array(
      select x.id from unnest(p_limiter_ids) l (id)
      cross join lateral (
        select q.id from partitions q
        where q.blocked_on = l.id and q.looked_at < v_long_since order by q.looked_at limit 10
        for no key update skip locked
      ) x);
  else
    v_ids := array(
      select x.id from unnest(p_shards) s (shard)
      cross join lateral (
        select q.id from partitions q
        where q.policy_id = (p_policy).id and q.shard = s.shard and q.ready and q.looked_at < v_long_since
        order by q.looked_at limit 10
        for no key update skip locked
      ) x);
  end if;
  if v_ids <> '{}' then
    update partitions p set
      looked_at = p_now,
      fair_key = _fair_key(
        o, _decayed(p.decayed_admits, p.decayed_at, o.half_life, p_now), p.mean_work, p.weight, p_now)
    from policies o where o.id = p.policy_id and p.id = any(v_ids);   -- others may wait for a shared limiter
  end if;
end
$$;

-- What a pass reads of these partitions, once for all of its steps. The caller has locked them.
--
-- The danger: while somebody's snapshot is open, each look-up of a row walks all versions that the row had since. So only the
-- last step of a pass looks them up again, to write them.
--
--   p_first   those of them of which jobs go before their turn, beside those that are marked so
create or replace function _claimed(p_partition_ids uuid[], p_first claimed[])
returns claimed[] language plpgsql stable as $$
declare
  v_first uuid[];
  v_jobs int[];
begin
  if p_first <> '{}' then
    select array_agg(f.id), array_agg(f.first_jobs) into v_first, v_jobs from unnest(p_first) f;
  end if;
  return array(
    select _as_claimed(p, v_jobs[array_position(v_first, p.id)]) from partitions p where p.id = any(p_partition_ids));
end
$$;

-- A partition's row as passes read it. It is an expression, so that PostgreSQL inlines it.
--
--   first_jobs   so many of its jobs go before their turn; 0 or null: none, but the next one of those that are marked so
create or replace function _as_claimed(p partitions, first_jobs int) returns claimed language sql immutable as $$
  select row(p.id, p.shard, p.staged, p.limiter_ids, p.weight, p.min_cost, p.due_at, p.waiting_since,
    p.decayed_admits, p.decayed_at, p.mean_work, p.admitted_at, greatest(p.goes_first::int, first_jobs), p.probing, p.probe_job_id,
    p.head_priority, p.head_run_at, p.head_id, case when p.laned then p.key end, 1, 1)::claimed;
$$;

-- Postpones the claimed partitions that use a limiter which another transaction has locked, for as long as it has been locked: at
-- least 0.1 seconds, and at most a second. Returns the others.
--
--   p_locked   limiters that this pass found locked
--   p_busy     limiters that earlier passes found locked, with the time; without it each pass would wait for the limiter again
create or replace function _postpone(
  p_policy_id int, p_partition_ids uuid[], p_busy jsonb, p_locked bigint[], p_remember boolean, p_now timestamptz
) returns uuid[] language plpgsql as $$
declare
  v_now timestamptz := least(p_now, clock_timestamp());   -- a lock lasts by the clock; with a time ahead they would sleep
  v_busy jsonb;
  v_postponed uuid[];
begin
  v_busy := (
    select coalesce(jsonb_object_agg(u.id, coalesce(p_busy -> u.id::text, to_jsonb(v_now))), '{}')
    from unnest(p_locked) u (id));
  if p_remember and v_busy <> p_busy then
    update turns t set busy = v_busy
    where t.policy_id = p_policy_id and t.step = 'admit' and t.place = 0;
  end if;
  if p_locked = '{}' then
    return p_partition_ids;
  end if;
  with postponed as (
    update partitions p set
      blocked_on = null, denied_reason = null,
      denied_until = v_now + least(greatest(interval '100 milliseconds', (
        select max(v_now - (v_busy ->> u.id::text)::timestamptz)
        from unnest(p.limiter_ids) u (id) where u.id = any(p_locked))), interval '1 second')
    where p.id = any(p_partition_ids) and p.limiter_ids && p_locked
    returning p.id
  )
  select array_agg(o.id) into v_postponed from postponed o;
  return array(select u.id from unnest(p_partition_ids) u (id) where (u.id in (select unnest(v_postponed))) is not true);
end
$$;

-- Whether a partition's next job goes before those that wait in Graphile Worker already: nothing of it was admitted for a second,
-- and it is of class 0.
create or replace function _is_new(
  policy policies, weight float8, admitted_at timestamptz, now timestamptz
) returns boolean language sql stable as $$
  select (policy).half_life is not null and admitted_at < now - interval '1 second' and weight > 1e-21;
$$;

-- Of a policy with strict order: puts the claimed partitions to sleep that wait for their first job, and returns the others.
-- The caller has locked them, and has promoted what is due. So a first job whose time has come is locked by another session,
-- and its partition is looked at again in a moment.
create or replace function _wait_in_order(
  p_policy policies, p_partition_ids uuid[], p_now timestamptz, p_is_pass boolean
) returns uuid[] language plpgsql volatile as $$
declare
  v_waiting uuid[];
begin
  with laned as materialized (
    select q.id, q.key, q.laned from partitions q
    where (p_policy).keyed_scopes and q.id = any(p_partition_ids) and (q.laned or q.key in (
      select a.key from arrivals a where a.policy = (p_policy).name and a.partition_id <> all (p_partition_ids)))
  ),
  first as materialized (
    -- the first job in any lane, also one that is not routed yet, or one that is tried again
    select distinct on (k.key) k.key, s.partition_id
    from (select distinct m.key from laned m) k
    cross join lateral unnest(_lanes((p_policy).name, k.key, true)) x (id)
    cross join lateral (
      select h.id from _waiting_heads(array[x.id]) h
      union all
      select n.id from _next_in_order(x.id, 1) n
    ) j
    join staged_jobs s on s.id = j.id
    order by k.key, s.sort_at is not distinct from '-infinity' desc, s.priority, s.run_at, s.id
  ),
  waiting as materialized (
    select h.partition_id, h.until_at from _waiting_heads(p_partition_ids) h
    union all
    -- They wait for that job, whichever limiters its lane waits for, and are woken before (_share_lanes). One whose first other
    -- lane is being routed waits a moment.
    select m.id, case when m.laned then p_now + interval '1 second' else p_now end from laned m
    join first f on f.key = m.key where f.partition_id <> m.id or not m.laned
  ),
  marked as (
    update partitions p set
      denied_until = greatest(w.until_at, p_now + interval '50 milliseconds'), blocked_on = null,
      denied_reason = 'strict_order', looked_at = p_now, in_line_since = null, goes_first = false,
      fair_key = _fair_key(
        p_policy, _decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now),
        p.mean_work, p.weight, p_now),
      visited = nextval('ticks'),
      held_until = case when p.held_until <= p_now then '-infinity' else p.held_until end,
      breaker_until = case when p.breaker_until <= p_now then '-infinity' else p.breaker_until end,
      paused_until = case when p.paused_until <= p_now then '-infinity' else p.paused_until end
    from waiting w where p.id = w.partition_id and p.id = any(p_partition_ids)
    returning p.id
  )
  select coalesce(array_agg(m.id), '{}') into v_waiting from marked m;
  if v_waiting = '{}' then
    return p_partition_ids;
  end if;
  if (p_policy).recorded then
    perform _tell_waits((p_policy).id, v_waiting, p_now, p_is_pass);
  end if;
  return array(select u.id from unnest(p_partition_ids) u (id) where u.id <> all (v_waiting));
end
$$;

-- Which of these partitions wait in strict order, and until when: their first job has begun, and is not due. It failed and
-- waits for its retry, or Graphile Worker refused it. An operator's admission may have let several begin. The first of them
-- counts.
--
-- The danger: a parked job may have ended past its policy, or a newer job of its key may be staged. It will never run, and
-- its partition waited for its whole back-off. The cure: such a job does not count. One that somebody retried by hand still
-- does. The newer job's arrival wakes the partition, and a sweep does if nothing arrives.
create or replace function _waiting_heads(p_partition_ids uuid[])
returns table (partition_id uuid, id bigint, until_at timestamptz) language sql stable rows 10 as $$
  select u.id, h.id, h.until_at from unnest(p_partition_ids) u (id)
  cross join lateral (
    select s.id, coalesce(s.retry_at, s.run_at) as until_at from staged_jobs s
    where s.partition_id = u.id and not s.due
      and (s.parked_job_id is null or (   -- one look at the index for each
        select true from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.id = s.parked_job_id and (j.locked_at is not null or j.attempts < j.max_attempts)
          and (_is_parked(s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags)
            or _is_row_of(s.parked_revision, s.id, j.revision, j.flags))
          and (select true from staged_jobs n where n.job_key = j.key limit 1) is null
        limit 1))
      and s.sort_at = '-infinity' order by s.id limit 1
  ) h
  where not exists (
    select from staged_jobs s
    where s.partition_id = u.id and s.due and s.sort_at = '-infinity' and s.id < h.id);
$$;

-- The first due jobs of a partition whose policy has the option `order`. Those with a `sort_at` come first, by that time. The
-- others follow in the usual order. Each has its place among all candidates as priority and time. So a ranking over several
-- partitions knows no other order.
--
-- The danger: the second statement passes by all jobs that have a `sort_at`, and these may be 100,000. The cure: it runs only
-- if the first has found fewer than p_most.
create or replace function _next_in_order(p_partition_id uuid, p_most bigint)
returns table (ct tid, id bigint, priority smallint, run_at timestamptz, cost float8, is_plain boolean, due_at timestamptz)
language plpgsql stable rows 10 as $$
#variable_conflict use_column
declare
  v_found bigint;
begin
  return query
  select s.ctid, s.id, (-32768)::smallint, s.sort_at, s.cost, s.job_key is null and s.parked_job_id is null,
    greatest(s.run_at, s.created_at)
  from staged_jobs s
  where s.partition_id = p_partition_id and s.due and s.sort_at is not null
  order by s.sort_at, s.id limit p_most;
  get diagnostics v_found = row_count;
  if v_found < p_most then
    return query
    select s.ctid, s.id, s.priority, s.run_at, s.cost, s.job_key is null and s.parked_job_id is null,
      greatest(s.run_at, s.created_at)
    from staged_jobs s
    where s.partition_id = p_partition_id and s.due and s.sort_at is null
    order by s.priority, s.run_at, s.id limit p_most - v_found;
  end if;
end
$$;
