-- Why a job waits.

-- Why a job, or a partition's next job, waits, and what it waits for: as json, all read at one moment and without a lock.
--
--   as_of       the moment
--   state       of a job: staged, parked (failed, waits for its retry), admitted, running, failed (for good), ended (its
--     history says how), plain (of no policy's) or unknown. Of a partition: waiting, idle (no job waits) or unknown
--   id, job_id, policy, partition, task_identifier, run_at, attempts, started_at, worker_id, error   as far as it has them
--   reason      from the closed list; null: nothing does. Of a partition, this, `gates` and `place` are its next job's
--   acts, page  who has to act, and where more is said of the reason, see _known_reasons; null: there is none
--   waits_for   the run for whose end it waits, which it has cancelled: Graphile Worker's id; missing: none
--   gate        the name of the gate that the reason is about; null: the reason is about none
--   next_at     when that ends, if a time ends it
--   partition_id   of its row in the view partitions; null: it has none
--   stop        who paused or held it, why and until when; null: nobody
--   gates       see _explained_gates
--   place       `jobs_before`: due jobs of its partition that go before it, up to 10,000; null: it is not due.
--     `partitions_before`: how many go before its own, of those that are ready, or of those that wait for the same limiter,
--     as of the last look at each, up to 1,000; null: its own is neither. Of a job of a later class also `class`, and how many of
--     these are of lower ones (`lower_classes_before`)
--   estimate    of a waiting job: when it starts, see _estimate; null: no_estimate says why there is none
--   ticked_by   the live worker pool that runs the loop of its shard; null: none does
--   cancelled   of a job in flight: when, by whom and why it was cancelled; null: nobody has
--   history     of a job: what is known of its past, as in the view `history`; null: its policy keeps none
--   trace_id    of a job: the trace in which it was added; null: none is known
--   backlog     of a partition that waits for tokens: how many `jobs` it has, and in how many `seconds` all have theirs
--   in_flight, has_worker   of a partition of which none waits: how many run or are admitted, and whether a live worker has a task
--   long, runs_usually      of a job that has run for far longer than others do: see _explained_gates
--   failed      of a partition of which none waits: how many of its jobs failed for good, up to 100, and the error of the newest;
--     null: none has
--   groups      the open job groups of a job; missing: none
--   mend        the verb that lets it go, with its arguments, see _mend; null: it does not wait
--   sentence    all that in words
create or replace function :DISPATCH_POLICY_SCHEMA.explain(
  id bigint default null, policy text default null, partition text default null
) returns jsonb language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_it jsonb;
  v_job staged_jobs;
  v_partition partitions;
  v_partition_id uuid;
  v_stop jsonb;
  v_history jsonb;
  v_groups jsonb;
  v_in_groups text;
begin
  if (explain.id is null) = (explain.policy is null or explain.partition is null) then
    raise exception 'dispatch_policy: explain: give an id, or a policy and a partition; got id %, policy %, partition %',
      coalesce(explain.id::text, 'null'), coalesce(quote_literal(explain.policy), 'null'),
      coalesce(quote_literal(explain.partition), 'null') using errcode = 'DPARG';
  end if;
  if explain.id is not null then
    select s.* into v_job from staged_jobs s where s.id = explain.id or s.parked_job_id = explain.id limit 1;
    v_history := (
      select to_jsonb(h) || jsonb_build_object('id', h.id::text, 'job_id', h.job_id::text)
      from :DISPATCH_POLICY_SCHEMA.history h where h.id = explain.id or h.job_id = explain.id
      order by h.id <> explain.id, h.last_admitted_at desc nulls last limit 1);
    if v_job.id is null then
      v_it := _explained_run(explain.id);
      -- What failed for good has no slot: only its flag has the staged id. No index has that, so this reads all failed jobs
      if v_it ->> 'state' = 'unknown' and coalesce(v_history ->> 'outcome', 'failed') = 'failed' then
        v_it := coalesce((
          select _explained_run(j.id) || jsonb_build_object('id', explain.id::text)
          from :GRAPHILE_WORKER_SCHEMA.jobs j
          where j.locked_at is null and j.attempts >= j.max_attempts
            and strpos(j.flags::text, explain.id::text) > 0   -- cheap, and leaves few
            and _staged_id_of(j.flags) = explain.id and _is_ours(j.flags, j.created_at, j.key)
          limit 1), v_it);
      end if;
      if v_it ->> 'state' = 'unknown' and v_history ->> 'outcome' is not null then
        v_it := '{"state": "ended"}' || (
          select jsonb_object_agg(e.key, e.value) from jsonb_each(v_history) e
          where e.key in ('id', 'job_id', 'policy', 'partition', 'task_identifier', 'attempts', 'error', 'started_at'));
      end if;
    end if;
    select q.* into v_partition from partitions q where q.id = v_job.partition_id;
  else
    v_partition_id := _first_lane(_lanes((_policy(explain.policy)).name, explain.partition, true));
    select q.* into v_partition from partitions q where q.id = v_partition_id;
    -- before the router has made a partition, its jobs are there already
    select s.* into v_job from staged_jobs s where s.id = _head_of(v_partition_id);
    if v_job.id is null then
      select s.* into v_job from staged_jobs s
      where s.partition_id = v_partition_id and not s.due order by coalesce(s.retry_at, s.run_at) limit 1;
    end if;
    if v_partition.id is null and v_job.id is null then
      v_it := jsonb_build_object('state', 'unknown', 'failed', _failed_of(explain.policy, explain.partition));
    elsif v_job.id is null then
      v_stop := _stop_of(v_partition);
      v_it := jsonb_build_object('state', 'idle', 'reason', v_stop -> 'reason', 'stop', v_stop -> 'stop',
        'failed', _failed_of(explain.policy, explain.partition), 'in_flight', (
          select count(*) from in_flight_jobs f where f.partition_id = any(_siblings(v_partition_id))),
        'has_worker', exists (
          select from policy_tasks t join workers w on t.task_identifier = any(w.tasks)
          where t.policy_id = v_partition.policy_id and w.stale_at > v_now and not w.ended));
    end if;
    v_it := jsonb_build_object('policy', explain.policy, 'partition', explain.partition) || v_it;
  end if;
  if v_it is null then
    v_it := _explained_wait(v_job, v_partition, explain.id is null, v_now)
      || case when explain.id is null then '{"state": "waiting"}' else '{}' end::jsonb;
  end if;
  v_it := jsonb_build_object(
    'as_of', v_now, 'reason', null, 'gate', null, 'next_at', null, 'stop', null, 'gates', '[]'::jsonb, 'place', null,
    'estimate', null, 'no_estimate', null, 'partition_id', case when v_partition.laned
      then _first_lane(_siblings(v_partition.id)) else v_partition.id end, 'history', v_history) || v_it;
  if explain.id is not null then
    v_it := v_it || jsonb_build_object('trace_id', coalesce(
      v_it ->> 'trace_id', _trace_id_of(v_job.traceparent), v_history ->> 'trace_id'));
    select jsonb_agg(jsonb_build_object('id', g.id::text, 'total', g.total, 'jobs_left', g.jobs_left) order by g.id),
      string_agg(format(' It belongs to job group %s, of which %s of %s jobs are left.', g.id, g.jobs_left, g.total), ''
        order by g.id)
    into v_groups, v_in_groups
    from group_jobs m
    join groups g on g.id = m.group_id
    where m.staged_id = (v_it ->> 'id')::bigint or m.job_id = (v_it ->> 'job_id')::bigint;
  end if;
  v_it := v_it || jsonb_build_object('acts', case
    when v_it ->> 'reason' = 'waiting_key' and v_it ->> 'error' is not null then 'developer'
    when exists (select from jsonb_array_elements(v_it -> 'gates') g
      where g ->> 'gate' = v_it ->> 'gate' and (g #>> '{set_by,lowers}')::boolean) then 'operator'
    else (select r.acts from _known_reasons(v_it ->> 'reason') r) end);
  return v_it || jsonb_build_object('sentence', _sentence(v_it, v_now) || coalesce(v_in_groups, ''),
      'page', (select r.page from _known_reasons(v_it ->> 'reason') r), 'mend', _mend(v_it, v_now))
    || case when v_groups is null then '{}' else jsonb_build_object('groups', v_groups) end;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.explain from public;

-- The next staged jobs of a partition, each as `explain` has it: why it waits, and when it starts. They come in the order in
-- which passes take them. Those that are not due come last, by their times.
--
--   count   at most so many, 1 to 50: to explain one takes some milliseconds
--
--   select it ->> 'id', it ->> 'sentence' from dispatch_policy.explain_next('fetch_endpoint', 'ep1') it;
create or replace function :DISPATCH_POLICY_SCHEMA.explain_next(policy text, partition text, count int default 5)
returns setof jsonb language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan as $$
declare
  v_partition_id uuid;
  v_head_id bigint;
begin
  if explain_next.count is null or explain_next.count not between 1 and 50 then
    raise exception 'dispatch_policy: explain_next: count is %, expected 1 to 50', coalesce(explain_next.count::text, 'null')
      using errcode = 'DPARG';
  end if;
  v_partition_id := _first_lane(_lanes((_policy(explain_next.policy)).name, explain_next.partition, true));
  v_head_id := _head_of(v_partition_id);
  -- each part in the order of an index: a partition may have a million jobs
  return query
  select :DISPATCH_POLICY_SCHEMA.explain(id => u.id) from unnest(array(
    select n.id from (
      select v_head_id as id, 0 as stage, 0 as priority, '-infinity'::timestamptz as run_at where v_head_id is not null
      union all
      (select d.id, 1, d.priority::int, d.run_at from _next_in_order(v_partition_id, explain_next.count) d
        where d.id is distinct from v_head_id)
      union all
      (select s.id, 2, 0, coalesce(s.retry_at, s.run_at) from staged_jobs s
        where s.partition_id = v_partition_id and not s.due and s.id is distinct from v_head_id
        order by coalesce(s.retry_at, s.run_at) limit explain_next.count)
    ) n order by n.stage, n.priority, n.run_at, n.id limit explain_next.count)) with ordinality u (id, ord)
  order by u.ord;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.explain_next from public;

-- The state of a job that does not wait in staging, by its staged id or Graphile Worker's, as json. One that has failed for good
-- has no slot: policy and partition are those of the view `jobs`.
create or replace function _explained_run(p_id bigint) returns jsonb language sql stable as $$
  select coalesce((
    select jsonb_build_object(
      'state', case when j.locked_at is not null then 'running' when j.attempts >= j.max_attempts then 'failed'
        when f.job_id is not null then 'admitted' else 'plain' end,
      'id', coalesce(f.staged_id::text, j.id::text), 'job_id', j.id::text,
      'policy', coalesce(p.name, v.policy), 'partition', coalesce(q.key, v.partition),
      'task_identifier', j.task_identifier, 'run_at', j.run_at, 'attempts', j.attempts, 'started_at', j.locked_at,
      'worker_id', j.locked_by, 'error', j.last_error, 'trace_id', _trace_id_of(_traceparent_of(j.flags)),
      'cancelled', case when f.cancelled_at is not null
        then jsonb_build_object('at', f.cancelled_at, 'by', f.cancelled_by, 'reason', f.cancel_reason) end)
      || case when _is_long_run(extract(epoch from clock_timestamp() - j.locked_at)::float8, u.seconds)
        then jsonb_build_object('long', true, 'runs_usually', u.seconds) else '{}' end
    from (select p_id as id union all select f.job_id from in_flight_jobs f where f.staged_id = p_id) i
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = i.id
    left join in_flight_jobs f on f.job_id = j.id
    left join policies p on p.id = f.policy_id
    left join partitions q on q.id = f.partition_id
    cross join lateral (select _usual_seconds(f.policy_id) as seconds) u
    left join lateral (   -- else it read all jobs
      select x.policy, x.partition from :DISPATCH_POLICY_SCHEMA.jobs x where x.id = j.id and x.state = 'failed' limit 1
    ) v on true
    limit 1
  ), jsonb_build_object('state', 'unknown', 'id', p_id::text));
$$;

-- The seconds that 95 of 100 runs of a policy take at most, of all that it has had. Null: none has ended.
create or replace function _usual_seconds(p_policy_id int) returns float8 language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select _quantile(0.95, m.runs, m.run_max) from minutes m where m.policy_id = p_policy_id and m.minute = '-infinity';
$$;

-- The jobs of a partition that failed for good, as json: how many, up to 100, and the error of the newest; null: none.
create or replace function _failed_of(p_policy text, p_partition text) returns jsonb language sql stable as $$
  select jsonb_build_object('jobs', count(*), 'error', coalesce(
    _first_line((array_agg(f.last_error order by f.id desc))[1]), 'no error was recorded'))
  from (
    select j.id, j.last_error from :DISPATCH_POLICY_SCHEMA.jobs j
    where j.policy = p_policy and j.partition = p_partition and j.state = 'failed' order by j.id desc limit 100) f
  having count(*) > 0;
$$;

-- The job of a partition that goes next: the one that it waits for in strict order, else the first due one. Null: none is.
create or replace function _head_of(p_partition_id uuid) returns bigint language sql stable as $$
  select coalesce(
    (select h.id from _waiting_heads(array[p_partition_id]) h
      join partitions q on q.id = p_partition_id
      join policies p on p.id = q.policy_id and p.job_order = 'strict'),
    (select n.id from _next_in_order(p_partition_id, 1) n));
$$;

-- What stops a partition now, as json; null: nothing. `reason` is paused, held or breaker_open, `until` when that ends, if a
-- time ends it. `stop` says who did it, and why; `besides` is the hold or the breaker that ends before the other.
create or replace function _stop_of(p_partition partitions) returns jsonb language sql stable as $$
  select jsonb_build_object('reason', s.reason, 'until', u.until, 'stop', jsonb_build_object(
    'what', case when s.of_policy then 'policy' else 'partition' end,
    'by', case when s.of_policy then s.paused_by when s.reason = 'breaker_open' then 'breaker'
      else (p_partition).stopped_by end,
    'reason', case when s.of_policy then s.pause_reason when s.reason = 'breaker_open' then (p_partition).breaker_reason
      else (p_partition).stop_reason end,
    'until', u.until,
    'besides', case
      when s.reason = 'paused' or least((p_partition).held_until, (p_partition).breaker_until) <= clock_timestamp() then null
      when s.reason = 'held' then jsonb_build_object('kind', 'breaker', 'by', 'breaker',
        'reason', (p_partition).breaker_reason, 'until', (p_partition).breaker_until)
      else jsonb_build_object('kind', 'hold', 'by', (p_partition).stopped_by,
        'reason', (p_partition).stop_reason, 'until', (p_partition).held_until) end))
  from (
    select p.*, p.paused_until > clock_timestamp() as of_policy,
      _shown_reason(p.paused_until, (p_partition).paused_until, (p_partition).held_until,
        (p_partition).breaker_until, null) as reason
    from policies p where p.id = (p_partition).policy_id
  ) s
  cross join lateral (
    select case s.reason when 'paused' then greatest(s.paused_until, (p_partition).paused_until)
      else greatest((p_partition).held_until, (p_partition).breaker_until) end as at
  ) t
  cross join lateral (select case when isfinite(t.at) then t.at end as until) u
  where s.reason is not null;
$$;

-- What a staged job waits for, as json. Reasons come in the order in which a pass meets them: the job's own, a stop, a probe,
-- and the gates. If a partition is asked for, a stop comes before its next job's own reason.
create or replace function _explained_wait(
  p_job staged_jobs, p_partition partitions, p_of_partition boolean, p_now timestamptz
) returns jsonb language plpgsql stable as $$
declare
  v_policy policies;
  v_stop jsonb;
  v_gates jsonb;
  v_lack jsonb;
  v_head record;
  v_ahead record;   -- the jobs of its partition that go before it
  v_before int;
  v_class int := _class_of(1 / (p_partition).weight);
  v_lower int;   -- of those before, the ones of lower classes
  v_reason text;
  v_next timestamptz;
  v_parked record;   -- the failed run whose retry it is
  v_it jsonb;
begin
  select j.attempts, _first_line(j.last_error) as error into v_parked
  from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = (p_job).parked_job_id and j.attempts > 0;
  select p.* into v_policy from policies p
  where p.id = coalesce((p_partition).policy_id, (
    select t.policy_id from policy_tasks t where t.task_identifier = (p_job).task_identifier));
  p_partition.policy_id := v_policy.id;   -- its pause counts also before the router has made the partition
  -- Those that are due, and, unless it is due itself, those that are due before it (later). 10,000 of either: so many, or more.
  -- All parts have the order of an index: without it, PostgreSQL may read the whole table, because it expects to find 10,000 rows
  -- soon. The first of 870,000 jobs took 278 ms, not 0.04.
  select d.jobs, d.cost, case when (p_job).due then least(d.busy_since, greatest((p_job).created_at, (p_job).run_at))
    else d.busy_since end as busy_since, l.jobs as later_jobs, l.cost as later_cost
  into v_ahead
  from (
    select count(*)::int as jobs, coalesce(sum(x.cost), 0) as cost, min(x.at) as busy_since from (
      (select s.cost, greatest(s.created_at, s.run_at) as at from staged_jobs s
      where s.partition_id = (p_job).partition_id and s.due and s.sort_at is null and (p_job).sort_at is null
        and (s.priority, s.run_at, s.id) < ((p_job).priority, (p_job).run_at, (p_job).id)
      order by s.priority, s.run_at, s.id limit 10000)
      union all
      -- those that go before these, and the one for which they wait in strict order
      (select s.cost, greatest(s.created_at, s.run_at) from staged_jobs s
      where s.partition_id = (p_job).partition_id and (s.due or s.sort_at = '-infinity') and s.sort_at is not null
        and ((p_job).sort_at is null or (s.sort_at, s.id) < ((p_job).sort_at, (p_job).id))
      order by s.due, s.sort_at, s.id limit 10000) limit 10000) x
  ) d
  cross join (
    select count(*)::int as jobs, coalesce(sum(x.cost), 0) as cost from (
      select s.cost, s.priority, s.run_at, s.id from staged_jobs s
      where s.partition_id = (p_job).partition_id and not s.due and not (p_job).due
        and coalesce(s.retry_at, s.run_at) <= (p_job).run_at
      order by coalesce(s.retry_at, s.run_at) limit 10000) x
    where (x.priority, x.run_at, x.id) < ((p_job).priority, (p_job).run_at, (p_job).id)
  ) l;
  v_stop := _stop_of(p_partition);
  v_gates := _explained_gates(v_policy, p_partition, (p_job).cost, p_now);
  -- of all gates without room the one that has it last: until then the job does not go. A partition waits for the first
  select g.value into v_lack from jsonb_array_elements(v_gates) with ordinality g (value, ord)
  where (g.value ->> 'lacks')::boolean order by (g.value ->> 'next_at')::timestamptz desc nulls first, g.ord limit 1;
  select h.id, h.until_at into v_head from _waiting_heads(array[(p_partition).id]) h
  where v_policy.job_order = 'strict' and (p_of_partition or h.id <> (p_job).id);
  if (p_partition).ready then
    select count(*), count(*) filter (where x.fair_key < _class_from(v_class)) into v_before, v_lower from (
      select q.fair_key from partitions q
      where q.policy_id = v_policy.id and q.shard = (p_partition).shard and q.ready and q.fair_key < (p_partition).fair_key
      limit 1000) x;
  elsif (p_partition).blocked_on is not null then
    select count(*), count(*) filter (where x.fair_key < _class_from(v_class)) into v_before, v_lower from (
      select q.fair_key from partitions q
      where q.blocked_on = (p_partition).blocked_on and q.fair_key < (p_partition).fair_key limit 1000) x;
  end if;
  v_reason := case
    when p_of_partition and v_stop is not null then v_stop ->> 'reason'
    when p_of_partition and v_head.id is not null then 'strict_order'
    when (p_job).partition_id is null then 'waiting_key'
    when (p_job).waits_for is not null then 'older_run'
    when (p_job).retry_at is not null then 'quarantined'
    when not (p_job).due and (p_job).run_at > p_now then 'not_due'
    when v_stop is not null then v_stop ->> 'reason'
    when (p_partition).probe_job_id is not null then 'probing'
    when v_head.id is not null then 'strict_order'
    when v_lack is not null then v_lack ->> 'reason'
    when _reason_kind((p_partition).denied_reason) = 'turn' then (p_partition).denied_reason end;
  v_next := case v_reason
    when 'quarantined' then (p_job).retry_at
    when 'waiting_key' then (select k.retry_at from keyless_jobs k where k.staged_id = (p_job).id)
    when 'not_due' then (p_job).run_at
    when 'strict_order' then v_head.until_at
    when v_stop ->> 'reason' then (v_stop ->> 'until')::timestamptz
    when v_lack ->> 'reason' then (v_lack ->> 'next_at')::timestamptz end;
  v_it := jsonb_build_object(
    'state', case when (p_job).parked_job_id is null then 'staged' else 'parked' end,
    'id', (p_job).id::text, 'job_id', (p_job).parked_job_id::text, 'policy', v_policy.name,
    'partition', coalesce((p_partition).key, (
      select a.key from arrivals a where a.partition_id = (p_job).partition_id limit 1)),
    'task_identifier', (p_job).task_identifier, 'run_at', (p_job).run_at, 'error', coalesce((p_job).error, v_parked.error),
    'reason', v_reason, 'gate', case when v_reason = v_lack ->> 'reason' then v_lack ->> 'gate' end,
    'next_at', case when isfinite(v_next) then v_next end, 'stop', v_stop -> 'stop', 'gates', v_gates,
    'place', jsonb_build_object('jobs_before', case when (p_job).due then v_ahead.jobs end, 'partitions_before', v_before)
      || case when v_class > 0 then jsonb_build_object('class', v_class, 'lower_classes_before', v_lower) else '{}' end,
    'ticked_by', (
      select jsonb_build_object('pool_id', w.pool_id, 'host', w.host, 'pid', w.pid)
      from leases l
      join workers w on w.pool_id = l.holder
      where l.policy = v_policy.name and l.shard = coalesce((p_partition).shard, 'default') and l.expires_at > p_now
        and w.stale_at > p_now and not w.ended))
    || case when p_of_partition and v_reason = 'throttle_empty' and (p_partition).staged > 1 and not (p_partition).laned then (
      select jsonb_build_object('backlog', jsonb_build_object('jobs', (p_partition).staged, 'seconds',
        greatest((p_partition).staged * (p_job).cost - (v_lack ->> 'free')::float8, 0)
          / (v_lack #>> '{limit,rate}')::float8 * (v_lack #>> '{limit,per}')::float8))
      where v_lack #>> '{limit,calendar}' is null and v_lack ->> 'scope' = 'partition') else '{}' end
    || case when v_parked.attempts is null then '{}' else jsonb_build_object('attempts', v_parked.attempts) end
    || case when (p_job).waits_for is null then '{}' else jsonb_build_object('waits_for', (p_job).waits_for::text) end;
  return v_it || _estimate(
    v_it || jsonb_build_object('gates', jsonb_path_query_array(v_gates, '$[*] ? (@.shadow == false)')),   -- real ones
    v_stop, v_ahead, v_policy, p_partition, p_job, p_now);
end
$$;

-- What each gate says to a job of this cost, as a json array from narrow to broad scope, the ahead bound last. It is read
-- without a lock, and may be another at the next pass.
--
--   takes     how many of its slots the job takes; missing: one
--   behind    it has room, which is kept for a job before it that takes more; missing: not so
--   lacks     whether it has no room
--   next_at   when it has the tokens that it lacks, or when the override ends that sets it to 0; null: other jobs decide it
--   set_by    the override in force, with who set it and for what (`key`, or `where`, the context; neither: every key), and
--     whether it is a `hold`, and whether it `lowers` the policy's own; null: the numbers are the policy's, or of the job's context (`source`)
--   shared_by  the policies whose jobs it counts, of a shared limit; null: it is this policy's alone
--   misspelt  a key for which a limit is set, and which no job has: it differs by capitals or blanks from this one; null: none
--   kept_for  the partition for which a slot is reserved
--   holders   who occupies the slots of one without room: the five jobs that have done so for longest, oldest first. `long`:
--     it has run for more than a minute, and for ten times as long as 95 of 100 runs of the policy (`runs_usually`, seconds)
--   would_lack  of a shadow gate, which lacks nothing: whether it would have no room; null: the gate is real
create or replace function _explained_gates(p_policy policies, p_partition partitions, p_cost float8, p_now timestamptz)
returns jsonb language plpgsql stable as $$
begin
  return (
    select coalesce(jsonb_agg(jsonb_build_object(
      'gate', n.gate, 'kind', n.kind,
      'scope', coalesce(d.gate ->> 'scope', (array['partition', 'key', 'policy', 'workers'])[n.breadth + 1]),
      'key', case when n.breadth < 2 then n.scope_key end,
      'limit', case
        when n.share is not null then jsonb_build_object('max', n.cap, 'share', n.share, 'pools', greatest(n.pools, 1))
        when k.tokens is null then jsonb_build_object('max', n.cap)
        else jsonb_build_object('rate', n.rate, 'per', n.per, 'capacity', n.capacity,
          'sliding', n.spent is not null and n.calendar is null, 'calendar', n.calendar) end,
      'source', case when o.id is not null then 'override' when n.kind = 'ahead' then 'workers'
        when jsonb_typeof(d.gate -> 'values') = 'null' then 'context' else 'policy' end,
      'set_by', case when o.id is not null then jsonb_build_object(
        'lowers', coalesce(n.rate / n.per < (m.numbers).rate / (m.numbers).per, n.cap < (m.numbers).max, false), 'by', o.set_by, 'reason', o.reason, 'key', o.scope_key, 'where', o.context, 'hold', o.is_hold,
        'since', case when isfinite(o.from_at) then o.from_at else o.set_at end,
        'until', nullif(o.until_at, 'infinity')) end,
      'used', case when k.tokens is null then n.in_flight + n.ending else greatest(n.capacity - k.tokens, 0) end,
      'free', case when n.rate <= 0 then 0 when k.tokens is not null then greatest(k.tokens, 0)
        when n.cap is not null then coalesce(n.shadow_slots, n.slots) end,
      'shadow', k.is_shadow,
      'would_lack', case when k.is_shadow then coalesce((p_policy).enabled and _lacks_room(
        n.shadow_slots, null, null, n.shadow_tokens, n.capacity, n.rate, (p_partition).id, p_cost, i.takes), false) end,
      'lacks', k.lacks, 'reason', case when k.lacks then k.reason end,
      'next_at', case when not k.lacks then null
        -- when the override ends that gives it so little; null if it has no end, or the number is the gate's own
        when _reason_kind(k.reason) = 'zero' then (
          select nullif(w.until_at, 'infinity') from limiters l
          cross join lateral _override_now(l.policy_id, l, p_now) w
          where l.id = n.id and coalesce((w.set ->> 'rate')::float8, (w.set ->> 'max')::float8)
            <= case k.reason when 'cost_over_max' then i.takes - 1 else 0 end)
        when n.tokens is not null
          then _throttle_ready_at(n.tokens, n.rate, n.per, n.capacity, n.spent, n.calendar, p_cost, p_now) end,
      'misspelt', case when o.id is null and n.breadth < 2 then (
        select x.scope_key from overrides x
        where x.policy_id = m.policy_id and x.gate = n.gate and x.scope_key = any(_same_texts(_trimmed(n.scope_key), n.scope_key))
          and x.until_at > p_now and not x.taken_back
          and not exists (select from limiters l where (l.policy_id, l.gate, l.scope_key) = (x.policy_id, x.gate, x.scope_key))
        limit 1) end,
      'shared_by', case when d.gate ? 'shared' then (
        select to_jsonb(v.shared_by) from :DISPATCH_POLICY_SCHEMA.policies v where v.policy = n.gate) end,
      'kept_for', (select r.key from partitions r where r.id = n.reserved_for),
      'holders', coalesce(case when n.tokens is null and k.lacks then (
        select jsonb_agg(jsonb_build_object(
          'job_id', f.job_id::text, 'policy', (select p.name from policies p where p.id = f.policy_id), 'partition', q.key,
          'admitted_at', f.admitted_at, 'started_at', j.locked_at,
          'worker_id', j.locked_by, 'long', _is_long_run(extract(epoch from p_now - j.locked_at)::float8, u.seconds)) order by f.admitted_at, f.job_id)
        from (
          select x.* from in_flight_jobs x where n.id = any(x.limiter_ids) order by x.admitted_at, x.job_id limit 5) f
        join partitions q on q.id = f.partition_id
        left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id) end, '[]'),
      'runs_usually', u.seconds
    ) || case when i.takes > 1 then jsonb_build_object('takes', i.takes) else '{}' end
      || case when k.is_behind then '{"behind": true}'::jsonb else '{}' end order by i.ord), '[]')
    from (
      select x.id, min(x.ord) as ord, count(*)::int as takes
      from unnest((p_partition).limiter_ids) with ordinality x (id, ord) group by x.id) i
    join _rooms_of((p_partition).limiter_ids, p_now, true) n on n.id = i.id
    join limiters m on m.id = n.id
    left join lateral (
      select x.value as gate from jsonb_array_elements((p_policy).definition -> 'gates') x where x.value ->> 'name' = n.gate
    ) d on true
    left join overrides o on o.id = _override_id_at(
      m.policy_id, n.gate, n.scope_key, case when d.gate ->> 'scope' = 'partition' then (p_partition).context end, p_now, p_now)
    cross join lateral (
      -- nobody asks the gates of a policy that is switched off
      select coalesce((p_policy).enabled and _lacks_room(
          n.slots, n.reserved_for, n.reserved, n.tokens, n.capacity, n.rate, (p_partition).id, p_cost, i.takes), false) as has_none,
        coalesce((p_policy).enabled and (p_policy).by_cost and n.tokens is null and (p_partition).blocked_on = n.id
          and n.slots >= i.takes, false) as is_behind
    ) h
    cross join lateral (
      select h.has_none or h.is_behind as lacks, h.is_behind and not h.has_none as is_behind,
        _lack_reason(n.kind, n.tokens, n.rate, coalesce(n.share, n.cap), i.takes) as reason,
        coalesce(n.tokens, n.shadow_tokens) as tokens, n.shadow_tokens is not null or n.shadow_slots is not null as is_shadow
    ) k
    cross join lateral (
      select case when k.tokens is null and k.lacks then _usual_seconds((p_policy).id) end as seconds) u);
end
$$;
