-- Which numbers a gate has now: its own, or those of an operator's limit.

-- The numbers that overrides give a limiter now (`set`, null: none is in force) and until when, and when they last gave it
-- others (`turned_at`, null: never). It takes the override that _override_id_at takes.
--
-- It is a query without plpgsql, so that PostgreSQL puts it into that of _rooms_of. Each look-up goes by an index. A policy that
-- has none of a kind pays for one look at each kind.
create or replace function _override_now(
  p_policy_id int, limiter limiters, p_now timestamptz
) returns table (set jsonb, until_at timestamptz, turned_at timestamptz) language sql stable as $$
  select (array_agg(o.set order by o.rank, o.id desc) filter (where p_now < o.until_at))[1],
    (array_agg(o.until_at order by o.rank, o.id desc) filter (where p_now < o.until_at))[1],
    max(greatest(o.began_at, case when p_now >= o.until_at then o.until_at end))
  from (
    select x.*, 1 as rank from _overrides_by(p_policy_id, p_now) x
    where x.gate = limiter.gate and x.scope_key = limiter.scope_key and exists (
      select from overrides y
      where y.policy_id = p_policy_id and y.scope_key is not null)
    union all
    select x.*, 2 from partitions q
    cross join unnest(_pairs_of(q.context)) u (pair)
    cross join lateral (
      select y.* from _overrides_by(p_policy_id, p_now) y
      where y.context_pair = u.pair offset 0   -- planned by itself: else it read all of them for each limiter
    ) x
    where limiter.breadth = 0 and x.gate = limiter.gate and q.context @> x.context
      and q.id = _newest_lane(p_policy_id, limiter.scope_key)
      and exists (
        select from overrides y
        where y.policy_id = p_policy_id and y.context_pair is not null)
    union all
    select x.*, 3 from _overrides_by(p_policy_id, p_now) x
    where x.gate = limiter.gate and x.scope_key is null and x.context_pair is null
  ) o;
$$;

-- The overrides of a policy that a tick at `p_now` uses: those in force, and those that have ended. An override that was
-- set for at once is in force from then on, even by a clock that is behind.
create or replace function _overrides_by(p_policy_id int, p_now timestamptz)
returns table (
  id bigint, gate text, scope_key text, set jsonb, began_at timestamptz, until_at timestamptz, context jsonb,
  context_pair jsonb
)
language sql stable as $$
  select o.id, o.gate, o.scope_key, o.set,
    case when isfinite(o.from_at) or o.set_at > p_now then o.from_at else o.set_at end, o.until_at,
    o.context, o.context_pair
  from overrides o
  where o.policy_id = p_policy_id and o.from_at <= p_now and not (o.taken_back and p_now < o.until_at);
$$;

-- The override that gave a limiter its numbers at `p_at`, which is not after `p_now`. Null: none was in force. One of its key
-- goes before one of its partition's context (`p_context`, see _context_of), and that before one of every key. Of two such,
-- the one that was set last counts. The function _override_now, for passes, has the same order, and the same look by an
-- index for each kind.
create or replace function _override_id_at(
  p_policy_id int, p_gate text, p_scope_key text, p_context jsonb, p_at timestamptz, p_now timestamptz
) returns bigint language plpgsql stable as $$
begin
  return (
    select o.id from (
      select x.*, 1 as rank from _overrides_by(p_policy_id, p_now) x
      where x.gate = p_gate and x.scope_key = p_scope_key
      union all
      select x.*, 2 from unnest(_pairs_of(p_context)) u (pair)
      cross join lateral (
        select y.* from _overrides_by(p_policy_id, p_now) y where y.context_pair = u.pair offset 0
      ) x
      where x.gate = p_gate and p_context @> x.context
      union all
      select x.*, 3 from _overrides_by(p_policy_id, p_now) x
      where x.gate = p_gate and x.scope_key is null and x.context_pair is null
    ) o
    where o.began_at <= p_at and p_at < o.until_at
    order by o.rank, o.id desc limit 1);
end
$$;

-- When an override next begins or ends after `p_at`. infinity: it has ended, or never ends.
create or replace function _turns_at(
  override overrides, p_at timestamptz
) returns timestamptz language sql immutable as $$
  select case when override.from_at > p_at then override.from_at when override.until_at > p_at then override.until_at
    else 'infinity' end;
$$;

-- Ends the overrides of a key, of a context, or of all keys, from `p_from` on; null: at once. An override that begins at
-- `p_until` or later stays. Returns how many it ended that were in force or to come, and what these were: null if none. A hold
-- of a shadow gate's key is not among them, because set_limit cannot set its like.
create or replace function _end_overrides(
  p_policy_id int, p_gate text, p_key text, p_context jsonb, p_from timestamptz, p_until timestamptz, p_now timestamptz,
  out ended int, out was jsonb
) language plpgsql
set plan_cache_mode = force_custom_plan   -- by the key's index: there may be one for each of 10,000 accounts
as $$
declare
  v_at timestamptz := coalesce(p_from, p_now);
  v_pair jsonb := (_pairs_of(p_context))[1];
begin
  with current as (
    select o.id, o.from_at >= v_at as is_to_come, o.until_at > p_now as counts, o.set, o.from_at, o.until_at
    from overrides o
    where o.policy_id = p_policy_id and o.gate = p_gate and (o.scope_key = p_key or (p_key is null and o.scope_key is null))
      and (o.context_pair = v_pair or (v_pair is null and o.context_pair is null))
      and o.context is not distinct from p_context
      and not o.taken_back and o.from_at < coalesce(p_until, 'infinity')
    for update
  ),
  dropped as (
    delete from overrides o
    where o.id in (select c.id from current c where c.is_to_come)
  ),
  ended as (
    update overrides o set
      until_at = least(o.until_at, v_at), taken_back = p_from is null, announced_to = null,
      announce_at = case when not c.counts then o.announce_at when p_from is null then '-infinity'
        else least(o.announce_at, o.until_at, v_at) end
    from current c where o.id = c.id and not c.is_to_come
  )
  select count(*) filter (where c.counts),
    jsonb_agg(jsonb_build_object(
      'set', c.set, 'from', case when c.from_at > p_now then c.from_at end, 'until', nullif(c.until_at, 'infinity'))
      order by c.from_at, c.id) filter (where c.counts and not c.set ? 'shadow')
  into ended, was from current c;
end
$$;

-- How many limiters have the key of a limit now, or how many partitions have its context. For a context it reads all
-- partitions of the policy.
create or replace function _limit_matches(p_policy_id int, p_gate text, p_key text, p_where jsonb) returns int
language plpgsql stable as $$
begin
  return case when p_where is null then (
      select count(*) from limiters l
      where l.policy_id = p_policy_id and l.gate = p_gate and (p_key is null or l.scope_key = p_key))
    else (
      select count(distinct q.key) from partitions q
      where q.policy_id = p_policy_id and q.arrival_id > 0 and q.context @> p_where) end;
end
$$;

-- Raises unless the policy has the gate, the gate takes these values (`p_set`; its definition says which), and a limit by
-- context (`p_where`) makes sense for it. Only the limiter of a partition belongs to one context. One that counts over a key
-- is shared by partitions whose contexts may differ.
create or replace function _check_limit(
  p_policy policies, p_gate text, p_set jsonb default null, p_verb text default null, p_key text default null,
  p_where jsonb default null
) returns void language plpgsql as $$
declare
  v_gate jsonb := (
    select g.value from jsonb_array_elements((p_policy).definition -> 'gates') g where g.value ->> 'name' = p_gate);
  v_names text := (select string_agg(k, ', ' order by k) from jsonb_object_keys(v_gate -> 'overrides') k);
  v_key text;
  v_value jsonb;
  v_rule record;
begin
  if v_gate is null then
    raise exception 'dispatch_policy: policy % has no gate %; its gates: %', quote_literal((p_policy).name),
      coalesce(quote_literal(p_gate), 'null'),
      coalesce((select string_agg(quote_literal(g.value ->> 'name'), ', ')
        from jsonb_array_elements((p_policy).definition -> 'gates') g), 'none') using errcode = 'DPARG';
  elsif jsonb_typeof(p_set) <> 'object' or p_set = '{}' then
    raise exception 'dispatch_policy: set_limit: set is %, expected an object with some of %', p_set, v_names
      using errcode = 'DPARG';
  end if;
  for v_key, v_value in select * from jsonb_each(p_set) loop
    if not v_gate -> 'overrides' ? v_key then
      raise exception 'dispatch_policy: set_limit: % has no value %; it has %', v_gate ->> 'kind', quote_literal(v_key),
        v_names using errcode = 'DPARG';
    end if;
    select * into v_rule from jsonb_to_record(v_gate #> array['overrides', v_key])
      as r (expects text, least numeric, most numeric, whole boolean, zero boolean, signed boolean);
    if jsonb_typeof(v_value) <> 'number' or not (
        (v_rule.whole is not true or v_value::text ~ '^[0-9]+$')
        and ((v_rule.zero and v_value::numeric = 0)
          or case when v_rule.signed then abs(v_value::numeric) else v_value::numeric end
            between v_rule.least and v_rule.most)) then
      raise exception 'dispatch_policy: set_limit: % is %, expected %', v_key, left(v_value::text, 60), v_rule.expects
        using errcode = 'DPARG';
    end if;
  end loop;
  if (p_set ->> 'min')::int > (p_set ->> 'max')::int then
    raise exception 'dispatch_policy: set_limit: set is %, expected a min of no more than max', p_set using errcode = 'DPARG';
  elsif p_where is null then
    return;
  elsif p_key is not null then
    raise exception 'dispatch_policy: %: key is % and where is %, expected one of them', p_verb,
      quote_literal(left(p_key, 60)), left(p_where::text, 60) using errcode = 'DPARG';
  elsif v_gate ->> 'scope' <> 'partition' or (p_policy).shared then
    raise exception 'dispatch_policy: %: where is %, expected none: gate % counts over %, and not over a partition, which has a context. Name its key, or leave both out',
      p_verb, left(p_where::text, 60), quote_literal(p_gate),
      case v_gate ->> 'scope' when 'policy' then 'the whole policy' else 'a key' end using errcode = 'DPARG';
  elsif (case when jsonb_typeof(p_where) <> 'object' or p_where = '{}' then true
    else cardinality(_pairs_of(p_where)) < (select count(*) from jsonb_object_keys(p_where)) end) then
    raise exception 'dispatch_policy: %: where is %, expected an object of names in the context with a text, a number or a boolean each',
      p_verb, left(p_where::text, 60) using errcode = 'DPARG';
  end if;
end
$$;
