-- The large way: jobs that were chosen are admitted, and everybody is charged.

-- The second half of a pass. It admits the chosen jobs, and charges those that Graphile Worker took. The caller has
-- locked the partitions and limiters.
--
--   p_began   when the pass began; null: it is none, but an operator's admission (`p_forced`) or a release
create or replace function _admit_claimed(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[], p_candidates candidate[],
  p_now timestamptz, p_forced boolean, p_began timestamptz,
  out admitted int, out denied jsonb, out quarantined int, out saturated text
) language plpgsql as $$
declare
  v_partition_ids uuid[] := array(select c.id from unnest(p_claimed) c);
  v_candidates candidate[] := p_candidates;
  v_chosen_ids bigint[] := array(select c.staged_id from unnest(p_candidates) c where c.chosen);
  v_added record;
  v_leaving events[];
  v_places place[];
  v_charged record;
begin
  quarantined := 0;
  if _is_watched(p_policy) then
    v_leaving := _leaving(v_chosen_ids, p_now);
  end if;
  if (p_policy).per_worker then   -- if a worker pool requeues a job, it gets its place again
    v_places := array(
      select row(s.id, s.run_at, s.run_at_given, s.created_at, s.expires_at)::place
      from staged_jobs s where s.id = any(v_chosen_ids));
  end if;
  if v_chosen_ids <> '{}' then
    if p_began is null and not p_forced then
      -- a release leaves all of them to the next pass if one cannot go
      select _add_admitted(v_candidates, p_now) as admissions, '{}'::bigint[] as quarantined into v_added;
    else
      v_added := _add_what_passes(v_candidates, p_now);
    end if;
    quarantined := cardinality(v_added.quarantined);
    if quarantined > 0 then
      v_candidates := array(select c from unnest(v_candidates) c where c.staged_id <> all (v_added.quarantined));
    end if;
  else
    select '{}'::admission[] as admissions into v_added;
  end if;
  if v_leaving is not null then
    perform _tell_admissions(v_leaving, v_added.admissions, p_now, (p_policy).recorded);
  end if;
  admitted := (select count(*) from unnest(v_added.admissions) a where a.admitted);
  v_charged := _charge(
    p_policy, p_claimed, p_limiters, v_candidates, v_added.admissions, p_now, p_forced,
    nextval('ticks'));
  denied := v_charged.denied; saturated := v_charged.saturated;
  if v_places <> '{}' then
    perform _keep_places(v_places, v_added.admissions);
  end if;
  insert into activity (policy_id, at, passes, pass_seconds, admitted, denied, shadow_denied, quarantined, waits)
  select (p_policy).id, p_now, case when p_began is null then 0 else 1 end,
    coalesce(greatest(extract(epoch from clock_timestamp() - p_began), 0), 0), admitted, denied,
    v_charged.shadow_denied, quarantined, case when admitted > 0 then array(
      -- not "extract", which is numeric and takes three times as long
      select _seconds(1000 * greatest(date_part('epoch', p_now) - date_part('epoch', c.due_at), 0))
      from unnest(v_candidates) c
      where c.chosen and (c.staged_id in (select a.staged_id from unnest(v_added.admissions) a where a.admitted)) is true)
    else '{}' end;
  if (p_policy).recorded then
    perform _tell_waits((p_policy).id, v_partition_ids, p_now, p_began is not null);
  end if;
  if (p_policy).max_pending_in_all is not null then
    perform _count_pending((p_policy).name,
      -(select count(*)::int from unnest(v_added.admissions) a where a.staged_id is not null));
  end if;
  -- The danger: nobody may wait for a full cap any more, so the end of a job wakes nobody. Jobs that are due later, or were
  -- postponed, would be late. The cure: loops look again as if the cap had room.
  if (p_policy).when_busy <> 'wait' and _skip_or_delay(p_policy, v_partition_ids, p_now) then
    saturated := null;
  end if;
end
$$;

-- Admits the chosen jobs. If Graphile Worker refuses them together, it tries halves, down to the single job: what
-- passes is admitted, whatever the rest. A job that is refused alone is quarantined with the error, still staged, and is
-- tried again after a growing back-off.
--
-- A job may wait for another transaction that has just added a job of its key or made its queue, and has not committed. It
-- is quarantined as well, for a moment. The limiters are locked by now, so nobody waits for long: all together 50 ms, each
-- part 5 ms. A job without a key waits for its queue or its task, so the others of that queue or task are quarantined with
-- it.
--
-- After 400 refusals or 40 waits, jobs that were not tried stay as they are for the next pass. If no job passes, and
-- Graphile Worker's own schema fails, the error is raised: the jobs are not to blame.
create or replace function _add_what_passes(
  p_candidates candidate[], p_now timestamptz,
  out admissions admission[], out quarantined bigint[]
) language plpgsql
set lock_timeout = '50ms' as $$
declare
  v_chosen bigint[];
  v_todo jsonb;
  v_from int;
  v_to int;
  v_locks boolean;
  v_refusals int := 0;
  v_waits int := 0;
  v_broken int := 0;
  v_state text;
  v_error text;
begin
  quarantined := '{}';
  begin
    admissions := _add_admitted(p_candidates, p_now);
    return;
  exception when others then
    if _concerns_all(sqlstate) then
      raise;
    end if;
  end;
  admissions := '{}';
  perform set_config('lock_timeout', '5ms', true);
  -- first all those together that cannot wait for anybody
  v_chosen := array(
    select s.id from staged_jobs s
    where s.id = any(array(select c.staged_id from unnest(p_candidates) c where c.chosen))
    order by s.job_key is not null or s.queue_name is not null or s.parked_job_id is not null, s.failures, s.queue_name, s.id);
  v_from := (
    select count(*) from staged_jobs s
    where s.id = any(v_chosen) and s.job_key is null and s.queue_name is null and s.parked_job_id is null);
  v_todo := case when v_from between 1 and cardinality(v_chosen) - 1
    then jsonb_build_array(jsonb_build_array(v_from + 1, cardinality(v_chosen)), jsonb_build_array(1, v_from))
    else jsonb_build_array(jsonb_build_array(1, cardinality(v_chosen))) end;
  while jsonb_array_length(v_todo) > 0 and v_refusals < 400 and v_waits < 40 loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    begin
      admissions := admissions || _add_admitted(
        array(select c from unnest(p_candidates) c
          where c.chosen and c.staged_id in (select unnest(v_chosen[v_from:v_to]) except select unnest(quarantined))),
        p_now);
    exception when others then
      v_locks := sqlstate = '55P03';
      v_refusals := v_refusals + 1;
      v_waits := v_waits + case when v_locks then 1 else 0 end;
      if _concerns_all(sqlstate) then
        raise;
      elsif v_from < v_to then
        v_todo := v_todo || _halves(v_from, v_to);
      else
        v_broken := v_broken + case when left(sqlstate, 2) = any('{0A,25,3F,42,53,58,XX}') then 1 else 0 end;
        v_error := sqlerrm;
        v_state := sqlstate;
        quarantined := quarantined || _quarantine(
          v_chosen[v_from], v_chosen, sqlerrm, v_locks, p_now);
      end if;
    end;
  end loop;
  if v_broken >= 5 and admissions = '{}' and v_broken = cardinality(quarantined) then
    raise exception using errcode = v_state, message = v_error,
      detail = 'dispatch_policy: Graphile Worker refused every job of this admission; all stay staged.';
  end if;
  -- one that another session has locked was not quarantined: it is due still
  quarantined := array(select s.id from staged_jobs s where s.id = any(quarantined) and not s.due);
end
$$;

-- Whether an error is no job's fault: the statement was cancelled, or the server is busy or shuts down.
create or replace function _concerns_all(p_sqlstate text) returns boolean
language sql immutable as $$
  -- 53100 disk_full, 53300 too_many_connections; out of memory may come from so many jobs at once
  select left(p_sqlstate, 2) = any('{40,57}') or p_sqlstate = any('{53100,53300}');
$$;

-- Charges what was admitted, and decides for each claimed partition when it is looked at next. Counters, tokens, waiting
-- and decayed admits follow the jobs that Graphile Worker returned, not those that were chosen. A job that replaced a
-- waiting, already admitted one under its key counts once.
--
--   p_forced    tokens stop at zero
--   shadow_denied   how many of the jobs a shadow gate would have held back, by gate; if it is forced, nobody asks gates
--   saturated   a cap over all of the policy is reached, so nothing goes until a job ends. 'workers': only because they
--     have enough to do.
--
-- A partition waits for the first limiter, narrow scopes first, that has no room for its next job. Of several buckets of
-- its own, it waits for the one that is ready last. The reason is that limiter's. The others' may show later.
--
-- One plan, made once, serves one job and 5,000 (see _allocate), with hash joins only. So that no step reads a whole
-- table, each table's ids stand beside the join.
create or replace function _charge(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[],
  p_candidates candidate[],
  p_admissions admission[],
  p_now timestamptz, p_forced boolean, p_tick bigint, out denied jsonb, out saturated text,
  out shadow_denied jsonb
) language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
declare
  v_partition_ids uuid[] := array(select c.id from unnest(p_claimed) c);
  v_were_staged boolean := (p_candidates[1]).ct is not null;   -- a job admitted at its start was not
  v_has_gone boolean := exists (select from unnest(p_admissions) a where not a.admitted);
  v_put record;
  v_shadow_costs jsonb := '{}';
  v_left room_after[];
  v_verdicts verdict[];
begin
  v_put := _put_in_flight(
    p_policy, p_claimed, p_limiters, p_candidates, p_admissions, p_now,
    case when p_forced then '{"forced": true}'::jsonb end);
  shadow_denied := '{}';
  if v_put.partition_ids <> '{}' and exists (
    select from unnest(p_limiters) l where l.shadow_slots is not null or l.shadow_tokens is not null) then
    select s.costs, case when p_forced then '{}' else s.denied end into v_shadow_costs, shadow_denied
    from _met_shadows(p_limiters, p_claimed, p_candidates, p_admissions, v_put.kept) s;
  end if;
  with put as materialized (
    select * from unnest(v_put.partition_ids, v_put.admitted, v_put.first_job_ids, v_put.jobs, v_put.costs)
      n (partition_id, admitted, first_job_id, jobs, cost)
  ),
  -- What each limiter has left. The throttle of a shadow gate gives tokens only to the jobs that it had tokens for. The slots of
  -- jobs that were in flight there already are not taken twice.
  rooms as materialized (
    select l as before, coalesce(n.jobs, 0) as jobs,
      l.slots - coalesce(n.jobs, 0) + coalesce((v_put.recounted ->> l.id::text)::int, 0) as slots, t.tokens,
      case when l.spent is not null then _window_spend(
        l.spent, l.window_seconds, l.remembered, coalesce(l.tokens, l.shadow_tokens) - t.tokens, p_now) end as spent
    from unnest(p_limiters) l
    left join (
      select u.id, sum(n.jobs)::int as jobs, sum(n.cost) as cost
      from put n
      join unnest(p_claimed) p on p.id = n.partition_id
      cross join unnest(p.limiter_ids) u (id)
      where n.jobs > 0 or n.cost > 0 group by u.id
    ) n on n.id = l.id
    cross join lateral (
      -- a cap's tokens are null: greatest and least would make them 0, and the cap would look full
      select case when l.shadow_tokens is not null then l.shadow_tokens - coalesce((v_shadow_costs ->> l.id::text)::float8, 0)
        when p_forced and l.tokens is not null then greatest(l.tokens - coalesce(n.cost, 0), least(l.tokens, 0))
        else l.tokens - coalesce(n.cost, 0) end as tokens
    ) t
  ),
  -- what each partition has left: its share, its probe, and its next job
  leftovers as materialized (
    select p.id, p.limiter_ids, p.weight, p.due_at, p.waiting_since,
      _decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now)
        + coalesce(n.admitted, 0) * coalesce(_work_of(p_policy, p.mean_work), 1) as decayed,
      coalesce(n.admitted, 0) as admitted,
      case when p.probing then coalesce(p.probe_job_id, n.first_job_id) end as probe_job_id,
      h.staged_id as head_id, h.priority as head_priority, h.run_at as head_run_at, h.cost as head_cost,
      h.chosen as head_chosen,
      case when h.staged_id is null then (
        select min(coalesce(s.retry_at, s.run_at)) from staged_jobs s
        where s.partition_id = p.id and not s.due
      ) end as next_run_at,
      case when v_were_staged then coalesce(n.admitted, 0) + coalesce(g.jobs, 0) else 0 end as gone
    from unnest(p_claimed) p
    left join put n on n.partition_id = p.id
    left join (
      select distinct on (c.partition_id) c.* from unnest(p_candidates) c
      where (c.staged_id in (select a.staged_id from unnest(p_admissions) a)) is not true
      order by c.partition_id, c.pos
    ) h on h.partition_id = p.id
    -- those that left staging without an effect
    left join (
      select c.partition_id, count(*)::int as jobs from unnest(p_candidates) c
      where v_has_gone and c.staged_id in (select a.staged_id from unnest(p_admissions) a where not a.admitted)
      group by c.partition_id
    ) g on g.partition_id = p.id
  ),
  -- the limiters that have no room for their next jobs, and when each may have room
  lacks as materialized (
    select p.id as partition_id, u.ord::int, l.id as limiter_id, l.breadth, l.kind, l.tokens is not null as by_tokens,
      case when l.tokens is not null then _throttle_ready_at(
          l.tokens_left, l.rate, l.per, l.capacity, l.spent_left, l.calendar, p.head_cost, p_now)
        -- nobody is notified when Graphile Worker has recorded an end
        when l.ending > 0 then p_now + interval '10 milliseconds' end as ready_at,
      -- the limiter is gone: the partition is looked at again after a second
      case when l.id is null then 'concurrency_full'
        else _lack_reason(l.kind, l.tokens, l.rate, coalesce(l.share, l.cap), k.takes) end as reason
    from leftovers p
    cross join lateral unnest(p.limiter_ids) with ordinality u (id, ord)
    left join (
      select (r.before).*, r.slots as slots_left, r.tokens as tokens_left, r.spent as spent_left from rooms r
    ) l on l.id = u.id
    cross join lateral (select case when (p_policy).by_cost then _takes(p.limiter_ids, u.id) else 1 end as takes) k
    where p.head_id is not null and (
      l.id is null
      or _lacks_room(
        l.slots_left, l.reserved_for, l.reserved, case when l.tokens is not null then l.tokens_left end, l.capacity, l.rate,
        p.id, p.head_cost, k.takes))
  ),
  waits as materialized (
    select distinct on (k.partition_id) k.*
    from (
      select x.*, first_value(x.breadth = 0 and x.by_tokens) over (partition by x.partition_id order by x.ord) as by_bucket
      from lacks x
    ) k
    order by k.partition_id, case when k.by_bucket then k.breadth end, case when k.by_bucket then k.by_tokens end desc,
      case when k.by_bucket then k.ready_at end desc nulls last, k.ord
  ),
  verdicts as (
    select p.id, p.limiter_ids, p.weight, p.due_at, p.waiting_since, p.decayed, p.admitted, p.probe_job_id,
      p.head_id, p.head_priority, p.head_run_at, p.head_cost, p.next_run_at, p.gone,
      k.ord, k.breadth, k.kind, k.by_tokens, k.ready_at,
      case when p.head_id is null then null
        when p.probe_job_id is not null then 'probing'
        when k.partition_id is not null then k.reason
        when p.head_chosen is true then null
        else _turn_reason(p.admitted, (p_policy).batch_size) end,
      case when p.head_id is null then null
        when p.probe_job_id is not null then 'infinity'   -- until the release of the probe is routed
        -- it was chosen, but another session has its row locked
        when k.partition_id is null and p.head_chosen is true then p_now + interval '50 milliseconds'
        when k.partition_id is null then null
        when k.limiter_id is null then p_now + interval '1 second'
        when k.by_tokens then least(
          case when k.breadth = 0 then k.ready_at else 'infinity' end,
          _earlier_at(p.id, p.head_priority, p.head_run_at, p.head_id, (p_policy).job_order is not null, p_now))
        else 'infinity' end,
      -- also on a bucket of its own, whose time is known, because other numbers change that time
      case when p.head_id is not null and p.probe_job_id is null then k.limiter_id end
    from leftovers p left join waits k on k.partition_id = p.id
  )
  select array(select row(r.before, r.jobs, r.slots, r.tokens, r.spent)::room_after from rooms r),
    array(select v::verdict from verdicts v)
  into v_left, v_verdicts;
  if (p_policy).by_cost then
    v_verdicts := _behind_dear(v_verdicts, v_left, p_candidates);
  end if;
  perform _charge_limiters(
    (p_policy).id, v_partition_ids, v_left, v_verdicts, p_now,
    exists (select from unnest(p_admissions) a where a.waits_elsewhere));
  perform _mark_partitions(p_policy, v_verdicts, p_now, p_tick);
  if (p_policy).keyed_scopes then
    perform _share_lanes(p_policy, p_claimed, p_now);
  end if;
  denied := (
    select coalesce(jsonb_object_agg(d.reason, d.n), '{}') from (
      select v.reason, count(*) as n from unnest(v_verdicts) v where v.reason is not null group by v.reason
    ) d);
  saturated := (
    select case when bool_and(v.kind = 'ahead') then 'workers' else 'gate' end
    from unnest(v_verdicts) v
    where v.breadth >= 2 and not v.by_tokens and v.blocked_on is not null and v.reason <> 'cost_over_max' having count(*) > 0);
end
$$;

-- Verdicts of a pass where jobs take several slots. A partition's next job may have room, but rank behind one for which too few are
-- free: it waits with that one, or passes would look at it without end.
create or replace function _behind_dear(p_verdicts verdict[], p_left room_after[], p_candidates candidate[]) returns verdict[]
language plpgsql stable as $$   -- planned as _charge
begin
  return array(
    with next as materialized (
      select v as verdict, v.partition_id, v.limiter_ids, c.vt, c.priority, c.run_at, c.staged_id, v.blocked_on,
        v.blocked_on is null and v.probe_job_id is null and v.reason is not null as has_room,
        v.blocked_on is not null and not v.by_tokens and v.reason not in ('cost_over_max', 'max_zero') as is_dear
      from unnest(p_verdicts) v left join unnest(p_candidates) c on c.staged_id = v.head_id
    ),
    closed as materialized (
      select distinct on (n.blocked_on) n.blocked_on as id, n.vt, n.priority, n.run_at, n.staged_id
      from next n where n.is_dear order by n.blocked_on, n.vt, n.priority, n.run_at, n.staged_id
    ),
    behind as materialized (
      select distinct on (n.partition_id) n.partition_id, u.ord, (r.before).id, (r.before).breadth, (r.before).kind
      from next n
      cross join lateral unnest(n.limiter_ids) with ordinality u (id, ord)
      join closed c on c.id = u.id and (c.vt, c.priority, c.run_at, c.staged_id) < (n.vt, n.priority, n.run_at, n.staged_id)
      join unnest(p_left) r on (r.before).id = u.id
      where n.has_room order by n.partition_id, u.ord
    )
    select case when b.id is null then n.verdict else jsonb_populate_record(n.verdict, jsonb_build_object(
        'ord', b.ord, 'breadth', b.breadth, 'kind', b.kind, 'by_tokens', false, 'ready_at', null, 'reason', b.kind || '_full',
        'denied_until', 'infinity', 'blocked_on', b.id)) end
    from next n left join behind b on b.partition_id = n.partition_id);
end
$$;

-- What a pass met at shadow gates. The jobs come in the order in which a real gate ranks them. From the first one without room
-- on, all are held back, and take nothing. Each gate is judged by itself: what one would have held back takes from the others
-- all the same, because it goes.
--
--   p_kept   jobs that keep slots and tokens which they had before
--   costs    what the jobs that it would have let go cost, by limiter
--   denied   how many jobs it would have held back, by gate; without those of none
create or replace function _met_shadows(
  p_limiters room_before[], p_claimed claimed[],
  p_candidates candidate[],
  p_admissions admission[], p_kept bigint[], out costs jsonb, out denied jsonb
) language plpgsql stable as $$   -- planned as _charge
begin
  with judged as materialized (
    select c.id, c.gate, c.cost, bool_and(case when c.shadow_slots is not null then c.rank <= c.shadow_slots
      else c.rate > 0 and _lets_through(
        c.shadow_tokens, case when c.rank = 1 then c.capacity else 'Infinity' end, c.used) end) as has_room
    from (   -- a limiter is there once for each slot that a job takes
      select l.id, l.gate, l.shadow_slots, l.shadow_tokens, l.capacity, l.rate, c.cost, c.staged_id,
        row_number() over in_order as rank, sum(c.cost) over in_order as used
      from unnest(p_admissions) a
      join unnest(p_candidates) c on c.staged_id = a.staged_id
      join unnest(p_claimed) p on p.id = c.partition_id
      cross join lateral unnest(p.limiter_ids) u (id)
      join unnest(p_limiters) l on l.id = u.id and (l.shadow_slots is not null or l.shadow_tokens is not null)
      where a.admitted and (a.job_id in (select unnest(p_kept))) is not true
      window in_order as (partition by l.id order by c.vt, c.priority, c.run_at, c.staged_id rows unbounded preceding)
    ) c
    group by c.id, c.gate, c.cost, c.staged_id
  )
  select coalesce((select jsonb_object_agg(j.id, j.cost) from (
      select j.id, sum(j.cost) as cost from judged j where j.has_room group by j.id) j), '{}'),
    coalesce((select jsonb_object_agg(j.gate, j.jobs) from (
      select j.gate, count(*) as jobs from judged j where not j.has_room group by j.gate) j), '{}')
  into costs, denied;
end
$$;
