-- The history: what happened to each job.

-- Writes to the history what events say, the oldest first: what partitions waited for and when they were stopped, and then the
-- jobs, whose waits are worked out from it, each until its own time.
create or replace function _events_to_history(p_events events[]) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _charge
declare
  v_event events;
  v_events events[];
  v_round int := 1;
  v_ids uuid[];
  v_partition_id uuid;
  v_reason text;
  v_until timestamptz;
begin
  foreach v_event in array p_events loop
    if v_event.kind = 'waits' then   -- from when partitions wait for another reason than before, as a pass saw them
      v_ids := array(select k::uuid from jsonb_object_keys(v_event.facts -> 'reasons') k);
      if (v_event.facts -> 'isPass')::boolean then
        update waits s set until_at = greatest(s.from_at, v_event.at)
        where s.policy_id = v_event.policy_id and s.until_at > v_event.at and s.partition_id = any(v_ids);
      end if;
      insert into waits as w (partition_id, from_at, policy_id, reason, waited)
      select u.id, a.at, v_event.policy_id, k.reason, _reasons_until(u.id, a.at)
      from unnest(v_ids) u (id)
      cross join lateral (select v_event.facts -> 'reasons' ->> u.id::text as reason) k
      left join lateral (
        select x.from_at, x.reason from waits x
        where x.partition_id = u.id and x.until_at is null order by x.from_at desc limit 1) l on true
      cross join lateral (select greatest(v_event.at, l.from_at) as at) a   -- a clock may go back
      where l.reason is distinct from k.reason
      on conflict (partition_id, from_at) where until_at is null do update set reason = excluded.reason;
    elsif v_event.kind = 'stopped' then
      -- A pause replaces the one before, and a hold adds to it: one that goes on has one row, because each job's wait is worked
      -- out from all rows, and 50 jobs at once may hold a partition. The time -infinity ends either.
      v_partition_id := coalesce(v_event.partition_id, '00000000-0000-0000-0000-000000000000');   -- that is the whole policy
      v_reason := v_event.facts ->> 'reason';
      v_until := v_event.facts ->> 'until';
      update waits s set until_at = greatest(s.from_at, v_event.at)
      where s.policy_id = v_event.policy_id and s.partition_id = v_partition_id and s.reason = v_reason
        and s.until_at > v_event.at and (v_reason = 'paused' or v_until = '-infinity');
      continue when v_until <= v_event.at;
      update waits s set until_at = greatest(s.until_at, v_until)
      where v_reason <> 'paused' and s.ctid = any(array(
        select x.ctid from waits x
        where x.policy_id = v_event.policy_id and x.partition_id = v_partition_id and x.reason = v_reason
          and x.until_at >= v_event.at and x.from_at <= v_event.at
        limit 1 for update skip locked));
      continue when found;
      insert into waits (policy_id, partition_id, reason, from_at, until_at)
      values (v_event.policy_id, v_partition_id, v_reason, v_event.at, v_until);
    end if;
  end loop;
  loop   -- each time the next event of each job
    v_events := array(
      select x.e from (
        select e, e.id, row_number() over (partition by e.staged_id order by e.id) as n
        from unnest(p_events) e where e.kind in ('admitted', 'left', 'ended')) x
      where x.n = v_round order by x.id);
    exit when v_events = '{}';
    v_round := v_round + 1;
    -- a newer job of their key has got their row in Graphile Worker
    update history h set ended_at = e.at, outcome = 'replaced'
    from unnest(v_events) e
    where e.kind = 'admitted' and h.job_id = e.job_id and h.staged_id <> e.staged_id and h.ended_at is null
      and h.job_id = any(array(select x.job_id from unnest(v_events) x where x.kind = 'admitted'));
    update history h set ended_at = e.at, outcome = 'replaced'
    from unnest(v_events) e
    where e.kind = 'left' and not e.facts ? 'since' and h.staged_id = e.staged_id and h.ended_at is null
      and h.staged_id = any(array(select x.staged_id from unnest(v_events) x));
    -- For how many seconds each has waited in staging, by reason. Until it was due, it was not_due. From then on its partition's
    -- reasons and stops count. What they leave is in_line: others went first.
    with job as materialized (
      select e.staged_id, e.policy_id, e.partition_id, e.at, least((e.facts ->> 'since')::timestamptz, e.at) as since,
        least((e.facts ->> 'readyAt')::timestamptz, e.at) as ready_at
      from unnest(v_events) e where e.facts ? 'since'
    ),
    until_then as materialized (
      select q.partition_id, q.at, _reasons_until(q.partition_id, q.at) as waited
      from (select distinct j.partition_id, j.at from job j) q
    ),
    part as materialized (
      select j.staged_id, e.key as reason, e.value::numeric as seconds
      from job j join until_then u on u.partition_id = j.partition_id and u.at = j.at cross join jsonb_each_text(u.waited) e
      union all
      select j.staged_id, e.key, -e.value::numeric
      from job j cross join lateral jsonb_each_text(_reasons_until(j.partition_id, j.ready_at)) e
      union all
      select j.staged_id, s.reason, s.seconds
      from job j
      cross join lateral _stopped(j.policy_id, j.partition_id, j.ready_at, j.at) s
    ),
    summed as materialized (
      select p.staged_id, p.reason, sum(p.seconds) as seconds from part p
      group by p.staged_id, p.reason having sum(p.seconds) > 0
    ),
    whole as (
      select s.staged_id, s.reason, s.seconds from summed s
      union all
      select j.staged_id, 'not_due', extract(epoch from j.ready_at - j.since) from job j
      union all
      select j.staged_id, 'in_line', extract(epoch from j.at - j.ready_at) - coalesce(g.seconds, 0)
      from job j left join (
        select x.staged_id, sum(x.seconds) as seconds from summed x group by x.staged_id
      ) g on g.staged_id = j.staged_id
    ),
    waited as (
      select w.staged_id, jsonb_object_agg(w.reason, w.seconds) as waited from whole w where w.seconds > 0 group by w.staged_id
    )
    insert into history as h (
      staged_id, policy_id, partition, task_identifier, job_key, job_id, added_at, due_at, admitted_at, last_admitted_at,
      ended_at, outcome, error, waited, trace_id)
    select e.staged_id, e.policy_id, e.facts ->> 'key', e.facts ->> 'task', e.facts ->> 'jobKey', e.job_id,
      (e.facts ->> 'addedAt')::timestamptz, (e.facts ->> 'dueAt')::timestamptz, x.admitted_at, x.admitted_at,
      case when e.kind = 'left' then e.at end,
      case when e.kind = 'left' then coalesce(e.facts ->> 'outcome', e.facts ->> 'as', 'replaced') end,
      e.facts ->> 'error', coalesce(w.waited, '{}'),
      e.facts ->> 'trace'
    from unnest(v_events) e
    left join waited w on w.staged_id = e.staged_id
    cross join lateral (select case when e.kind = 'admitted' then e.at end as admitted_at) x
    where e.facts ? 'since' order by e.staged_id
    on conflict (staged_id) do update set
      policy_id = excluded.policy_id, partition = coalesce(excluded.partition, h.partition),
      job_id = coalesce(excluded.job_id, h.job_id),
      admitted_at = coalesce(h.admitted_at, excluded.admitted_at),
      last_admitted_at = coalesce(excluded.last_admitted_at, h.last_admitted_at),
      -- one that failed for good may have been brought back
      started_at = case when excluded.admitted_at is null then h.started_at end,
      ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error,
      waited = _sum_by_key(h.waited, excluded.waited);
    insert into history as h (
      staged_id, policy_id, partition, task_identifier, job_id, admitted_at, last_admitted_at, started_at, ended_at, outcome,
      attempts, error)
    select e.staged_id, e.policy_id, e.facts ->> 'key', e.facts ->> 'task', e.job_id, x.admitted_at, x.admitted_at,
      (e.facts ->> 'startedAt')::timestamptz, coalesce((e.facts ->> 'endedAt')::timestamptz, e.at), e.facts ->> 'outcome',
      (e.facts ->> 'attempt')::int, case when e.facts ->> 'outcome' <> 'succeeded' then e.facts ->> 'error' end
    from unnest(v_events) e
    cross join lateral (select (e.facts ->> 'admittedAt')::timestamptz as admitted_at) x
    where e.kind = 'ended' and e.facts ->> 'outcome' is not null order by e.staged_id
    on conflict (staged_id) do update set
      job_id = excluded.job_id, started_at = excluded.started_at, ended_at = excluded.ended_at, outcome = excluded.outcome,
      attempts = excluded.attempts, error = excluded.error,
      task_identifier = coalesce(h.task_identifier, excluded.task_identifier);
    -- of its failed attempts the last ten are kept, so that one with many does not make its row longer with each
    update history h set failed_attempts = (
        select jsonb_agg(x.value order by x.n)
        from (
          select a.value, a.n, count(*) over () as attempts
          from jsonb_array_elements(h.failed_attempts || jsonb_build_object('attempt', e.facts -> 'attempt',
            'started_at', e.facts -> 'startedAt', 'ended_at', e.facts -> 'endedAt', 'error', e.facts -> 'error'))
            with ordinality a (value, n)
        ) x where x.n > x.attempts - 10)
    from unnest(v_events) e
    where e.kind = 'ended' and e.facts ->> 'ok' = 'false' and h.staged_id = e.staged_id
      and h.staged_id = any(array(select x.staged_id from unnest(v_events) x));
  end loop;
end
$$;

-- Ends the history of jobs that left both staging and their slots, and that no release has ended: an operator took the slot of a
-- job that ran, or unstaged its parked job. It skips locked rows.
--
-- It reads a page of those that have not ended, at most `p_max`, by policy and staged_id, behind the place that the caller
-- gives. Many may go on, such as retries that go past the gates.
--
--   closed      how many it has ended
--   policy_id, staged_id   the place behind which the next page begins; null: this was the last one
create or replace function _close_history(
  p_now timestamptz, p_policy_id int default 0, p_staged_id bigint default 0, p_max int default 10000,
  out closed int, out policy_id int, out staged_id bigint
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_page bigint[] := array(
    select h.staged_id from policies p
    cross join lateral (
      select y.staged_id from history y
      where y.policy_id = p.id and y.ended_at is null and y.staged_id > case when p.id = p_policy_id then p_staged_id else 0 end
      order by y.ended_at, y.staged_id limit p_max
    ) h
    where p.history_kept_for is not null and p.id >= p_policy_id
    order by p.id, h.staged_id limit p_max);
begin
  if cardinality(v_page) = p_max then
    select h.policy_id, h.staged_id into policy_id, staged_id
    from history h where h.staged_id = v_page[p_max];
  end if;
  with lost as materialized (
    select h.staged_id, h.job_id from history h
    where h.staged_id = any(v_page) and h.ended_at is null and h.last_admitted_at < p_now - interval '1 minute'
      and not exists (
        select from in_flight_jobs f
        where f.job_id = h.job_id and f.staged_id = h.staged_id)
      and not exists (
        select from staged_jobs s where s.id = h.staged_id or s.parked_job_id = h.job_id)
      and not exists (select from events e where e.staged_id = h.staged_id)   -- they say how it ended
    for update of h skip locked
  )
  update history h set ended_at = p_now,
    outcome = case when l.is_replaced then 'replaced' when l.has_failed then 'failed' else 'gone' end,
    attempts = l.attempts, error = case when l.has_failed and not l.is_replaced then l.error end
  from (
    select x.staged_id, f.job_id is not null as is_replaced, j.attempts >= j.max_attempts is true as has_failed, j.attempts,
      _first_line(j.last_error) as error,
      j.id is not null and (j.locked_at is not null or j.attempts < j.max_attempts) as goes_on
    from lost x
    left join in_flight_jobs f on f.job_id = x.job_id
    left join lateral (
      select y.id, y.attempts::int, y.max_attempts, y.last_error, y.locked_at
      from :GRAPHILE_WORKER_SCHEMA.jobs y where y.id = x.job_id limit 1) j on true
  ) l
  where h.staged_id = l.staged_id and (l.is_replaced or not l.goes_on);
  get diagnostics closed = row_count;
end
$$;
