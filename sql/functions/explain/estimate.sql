-- When a job will start.

-- When a waiting job starts, as json: `estimate` with `from`, `until` and `basis`, or null with `no_estimate`, why not, in
-- words. `p_it` is what _explained_wait says of the job, with the gates that are real, `p_stop` what stops its partition, and
-- `p_ahead` what goes before it.
--
-- It goes after all that go before, from now on, or from the end of a stop. If it is due later, it also goes after those that
-- are due until then, from its time on. It waits for a worker slot after that.
create or replace function _estimate(
  p_it jsonb, p_stop jsonb, p_ahead record, p_policy policies, p_partition partitions, p_job staged_jobs, p_now timestamptz
) returns jsonb language plpgsql stable as $$
declare
  -- from then on jobs go; a pause shows, a hold behind it may last longer
  v_goes_at timestamptz := greatest(
    p_now, (p_stop ->> 'until')::timestamptz, (p_partition).held_until, (p_partition).breaker_until);
  v_jobs int := p_ahead.jobs + p_ahead.later_jobs;
  v_why text := case
    when (p_job).partition_id is null then 'its partition is not worked out yet'
    -- for as long as the doctor waits for the crontab
    when p_it -> 'ticked_by' = 'null' and (p_policy).crontab_ticked_at < p_now - interval '5 minutes' then
      'neither a loop nor the crontab ticks its policy'
    when (p_partition).id is null then 'no tick has seen its partition yet'
    when p_stop ->> 'reason' = 'paused' and p_stop ->> 'until' is null then 'it is paused until resume'
    when (p_partition).probe_job_id is not null or ((p_partition).probing and v_jobs > 0) then
      'it waits for the end of the job that goes first after a hold'
    when p_it ->> 'reason' = 'strict_order' then 'the job that goes first may fail again'
    when (p_job).waits_for is not null then 'nobody knows when the run ends for which it waits'
    when (p_job).retry_at is not null then 'Graphile Worker did not take it, and may not at the next try'
    when p_it -> 'gates' @? '$[*] ? (@.reason == "cost_over_max")' then 'it takes more slots than a limit has'
    when exists (
      select from jsonb_array_elements(p_it -> 'gates') g where _reason_kind(g ->> 'reason') = 'zero'
    ) then 'a limit of zero lets nothing go'
    when not isfinite((p_job).run_at) then 'it is never due' end;
  v_wait record;
  v_then record;
  v_until_s float8;
  v_basis text;
  v_lag float8;
  v_until timestamptz;
  v_changes_at timestamptz;
begin
  if v_why is null then
    v_wait := _wait_seconds(p_it, p_policy, p_partition, (p_job).cost, v_jobs,
      p_ahead.cost + p_ahead.later_cost, p_ahead.busy_since, v_goes_at, p_now);
    v_then := _wait_seconds(p_it, p_policy, p_partition, (p_job).cost, p_ahead.later_jobs,
      p_ahead.later_cost, p_ahead.busy_since, greatest(v_goes_at, (p_job).run_at), p_now);
    v_why := coalesce(v_wait.why, v_then.why);
  end if;
  if v_why is not null then
    return jsonb_build_object('estimate', null, 'no_estimate', v_why);
  end if;
  v_until_s := v_wait.most_s;
  v_basis := case when v_goes_at = p_now then ''
    when v_goes_at in ((p_partition).held_until, (p_partition).breaker_until) then 'the end of the hold, and '
    else 'the end of the pause, and ' end || v_wait.basis;
  if (p_job).run_at > v_goes_at and extract(epoch from (p_job).run_at - v_goes_at) + v_then.most_s >= v_until_s then
    v_until_s := extract(epoch from (p_job).run_at - v_goes_at) + v_then.most_s;
    v_basis := 'the time at which it is due' || case when v_then.most_s > 0.5 then ', and ' || v_then.basis else '' end;
  end if;
  -- How long it waits for a worker slot. By Little's law it spends as long in Graphile Worker as the jobs in flight take to
  -- end at their pace. Some of it is its own run. 0 if no pace was measured lately
  v_lag := coalesce((
    select greatest(l.in_flight / m.pace - coalesce(d.seconds, 0), 0)
    from limiters l
    cross join lateral _worker_slots((p_policy).id) s
    cross join lateral (select min(x.seconds) as seconds from unnest(l.durations) x) f
    cross join lateral (select _pace(l, s.slots, f.seconds, p_now) as pace) m
    left join lateral unnest(l.durations) d on d.task = (p_job).task_identifier
    where l.id = (p_policy).ahead_limiter_id and m.pace > 1e-6
      and l.sampled_at between p_now - interval '1 minute' and p_now + interval '1 minute'
    limit 1), 0);
  v_until_s := v_until_s + v_lag * 2; -- the lag of a job varies much
  if p_it -> 'ticked_by' = 'null' then
    v_until_s := v_until_s + 60;
    v_basis := v_basis || ', and a tick each minute';
  end if;
  if v_until_s > 31536000 then
    return jsonb_build_object('estimate', null, 'no_estimate', 'it may take longer than a year');
  end if;
  v_until := v_goes_at + make_interval(secs => v_until_s);
  -- An override begins or ends. One that another override hides changes nothing
  v_changes_at := (
    select min(t.at) from overrides o
    join lateral (
      select g ->> 'gate' as gate, coalesce(g ->> 'key', '') as key,
        case when g ->> 'scope' = 'partition' then (p_partition).context end as context -- a shared gate has no single one
      from jsonb_array_elements(p_it -> 'gates') g
    ) g on g.gate = o.gate and (o.scope_key is null or o.scope_key = g.key)   -- of many keys only this one's
    cross join lateral (values (o.from_at), (o.until_at)) t (at)
    where o.policy_id = (p_policy).id and isfinite(t.at) and t.at > p_now
      and _override_id_at((p_policy).id, g.gate, g.key, g.context, t.at, t.at) is distinct from
        _override_id_at((p_policy).id, g.gate, g.key, g.context, p_now, p_now));
  if v_changes_at < v_until then
    return jsonb_build_object('estimate', null,
      'no_estimate', 'a limit changes at ' || date_trunc('second', v_changes_at));
  end if;
  return jsonb_build_object('no_estimate', null, 'estimate', jsonb_build_object(
    'from', least(greatest(v_goes_at + make_interval(secs => v_wait.least_s + v_lag / 2), (p_job).run_at), v_until),
    'until', v_until, 'basis', v_basis));
end
$$;

-- In how many seconds after `p_at` a job goes: at least, and at most, with the basis in words. So many jobs of its partition, of
-- this cost, go before it. If nobody can tell, `why` says why. `p_it` is as in _estimate.
--
-- A job goes at the latest of its gates' times. A throttle of its partition alone gives its time by its tokens. Every other gate
-- depends on other jobs: what all of them let through is the pace at which the partition's jobs went lately. That pace counts if
-- another gate than that throttle has no room for all of these jobs, or if other partitions or passes keep them back.
--
-- While the job's own throttle is what it waits for, the time is nearly exact, and the pace is that of the throttle. If the
-- partition was slower, something behind the throttle was, or nobody had jobs: then the time may be that of the pace.
--
-- The starts ahead, and the count behind the pace, are taken for as noisy as random arrivals: 1.75 deviations to each side are
-- some 92 % of a normal distribution.
create or replace function _wait_seconds(
  p_it jsonb, p_policy policies, p_partition partitions, p_cost float8, p_jobs int, p_cost_ahead float8,
  p_busy_since timestamptz, p_at timestamptz, p_now timestamptz,
  out least_s float8, out most_s float8, out basis text, out why text
) language plpgsql stable as $$
declare
  v_most int := case when p_jobs < 10000 then p_jobs else greatest((p_partition).staged, p_jobs) end;
  v_gates record;
  v_by_tokens boolean;
  v_crowded boolean;
  v_filled float8 := 0;
  v_half_life float8 := (p_policy).half_life;
  v_work float8 := _work_of(p_policy, (p_partition).mean_work);
  v_counted float8 := _decayed(   -- jobs that were admitted lately
    (p_partition).decayed_admits, (p_partition).decayed_at, v_half_life, p_now) / coalesce(v_work, 1);
  v_total float8 := (p_partition).admitted_total;
  v_busy float8 := least(
    greatest(extract(epoch from p_now - coalesce(p_busy_since, p_now))::float8, 0),
    case when v_work is null then _counted_seconds(v_counted, v_total, v_half_life) end);
  v_left float8 := exp(-least(v_busy * ln(2) / v_half_life, 500)); -- of a job that was admitted when it became busy
  v_raised float8;
  v_has_pace boolean;
  v_evidence float8;
  v_least_per_s float8;
  v_most_per_s float8;
  v_by_pace record;
begin
  -- nobody asks the gates of a policy that is switched off. A shared throttle is no faster than its rate
  select max(l.least_s) as least_s, max(m.most_s) filter (where k.own) as most_s,
    coalesce(bool_or(k.own and g ->> 'gate' = p_it ->> 'gate'), false) as by_own,
    coalesce(bool_or(k.lacks), false) as lacks,
    coalesce(bool_or(k.lacks and k.rate is null), false) as full,
    coalesce(bool_or(not k.own and (k.lacks or (g ->> 'free')::float8 < case when k.rate is null then (p_jobs + 1) * coalesce((g ->> 'takes')::int, 1)
      else p_cost_ahead + least(p_cost, (g #>> '{limit,capacity}')::float8) end)), false) as crowded
  into v_gates from jsonb_array_elements(p_it -> 'gates') g
  cross join lateral (
    select g #>> '{limit,rate}' as rate, g ->> 'scope' = 'partition' and g #>> '{limit,rate}' is not null as own,
      (g ->> 'lacks')::boolean as lacks
  ) k
  left join lateral _throttle_seconds(g, p_cost_ahead, p_cost, p_at, p_now) l on k.rate is not null
  left join lateral _throttle_seconds(
    g, p_cost_ahead * v_most / greatest(p_jobs, 1), p_cost, p_at, p_now) m on k.own
  where (p_policy).enabled;
  -- a token for the next job is often there, although the tokens keep back those behind it
  v_by_tokens := v_gates.by_own or (v_gates.most_s > 0.5 and not v_gates.lacks);
  v_crowded := v_gates.crowded
    or coalesce((p_it #>> '{place,partitions_before}')::int, 0) > 0
    or (_reason_kind(p_it ->> 'reason') = 'turn') is true
    or (v_gates.most_s is null and p_jobs >= (p_policy).batch_size);
  least_s := coalesce(v_gates.least_s, 0);
  most_s := coalesce(v_gates.most_s, 0.5);
  basis := case when v_gates.most_s is not null then 'the tokens of its partition' else 'the gates, which have room' end;
  if v_crowded and not v_by_tokens and v_gates.full then
    -- how many of the counted jobs are still in flight: each with what is left of it in the count
    v_filled := coalesce((
      select sum(_decayed(1, f.admitted_at, (p_policy).half_life, p_now))
      from in_flight_jobs f where f.partition_id = (p_partition).id), 0);
  end if;
  -- At what pace its jobs were admitted lately: at least, and at most. There is none if the policy counts no jobs (no half-life),
  -- or fewer than three. The count is of a steady pace only after some half-lives. It is known since when the partition has had
  -- jobs, and how many it ever admitted. At most none of the counted went before that. At least all of the others did, just
  -- before. That time counts from its first admissions on (_counted_seconds): with a slow start, while it is routed and workers
  -- begin, the pace would be too low (decision 002). The jobs that filled the slots of a cap at once do not count for the pace at
  -- least: while they have them, they say nothing of how fast slots come free.
  v_has_pace := coalesce(v_counted >= 3 and v_counted - v_filled >= 1, false);
  if v_has_pace then
    -- (sum of weights)^2 / sum of squared weights, if it was busy for that long: in the end twice the count, at first once
    v_evidence := v_counted * 2 / (1 + v_left);   -- so many random arrivals tell a pace as surely
    v_least_per_s := v_counted * ln(2) / v_half_life;
    v_most_per_s := v_least_per_s / greatest(1 - v_left, 0.001);
    if v_busy > 0.05 * v_half_life then
      -- by how much one job a second since then raises the count, less what it leaves to those before
      v_raised := v_half_life / ln(2) * (1 - v_left) - v_left * v_busy;
      v_least_per_s := least(greatest(v_least_per_s, (v_counted - v_left * v_total) / v_raised), v_most_per_s);
    end if;
    v_least_per_s := v_least_per_s * (1 - v_filled / v_counted);
  end if;
  -- nulls without a pace
  select x.jobs / v_most_per_s * greatest(1 - 1.75 * sqrt(1.0 / x.jobs + 1.0 / v_evidence), 0) as least_s,
    x.most / v_least_per_s * (1 + 1.75 * sqrt(1.0 / x.most + 1.0 / v_evidence)) + 0.5 as most_s
  into v_by_pace from (select p_jobs + 1 as jobs, v_most + 1 as most) x;   -- with the job itself
  if v_by_tokens then
    if v_by_pace.least_s > most_s then
      most_s := v_by_pace.most_s;
      basis := 'the tokens of its partition, which was slower lately';
    end if;
  elsif v_crowded and not v_has_pace then
    why := case when (p_policy).half_life is null then 'without fairness nobody counts how fast its partition goes'
      when v_filled >= 2 then 'too few jobs of its partition have ended lately to tell a pace'
      else 'too few jobs of its partition went lately to tell a pace' end;
  elsif v_crowded then
    least_s := greatest(least_s, v_by_pace.least_s);
    most_s := greatest(least_s, most_s, v_by_pace.most_s);
    basis := 'the pace of its partition, about ' || round(v_counted) || ' jobs lately';
  end if;
end
$$;

-- In how many seconds after `p_at` a throttle has the tokens for a job: at least, and at most. Only jobs of its own partition
-- spend them, and nobody has until `p_at`. `p_gate` is a gate of _explained_gates.
--
-- If nothing is spent before, the gate's `next_at` is exact. A job that costs more than the bucket's capacity waits for a full
-- one, and leaves a debt. The tokens of a window come back as unevenly as they were spent, a 64th of it late. What does not fit
-- into the calendar window that has `p_at` in it goes in those that follow. What is too little for one more job stays unused in
-- each.
create or replace function _throttle_seconds(
  p_gate jsonb, p_cost_ahead float8, p_cost float8, p_at timestamptz, p_now timestamptz,
  out least_s float8, out most_s float8
) language plpgsql stable as $$
declare
  v_calendar text := p_gate #>> '{limit,calendar}';
  v_per float8 := (p_gate #>> '{limit,per}')::float8;
  v_capacity float8 := (p_gate #>> '{limit,capacity}')::float8;
  v_rate float8 := (p_gate #>> '{limit,rate}')::float8 / v_per;
  v_after float8 := extract(epoch from p_at - p_now);
  v_used float8 := (p_gate ->> 'used')::float8;
  v_cost float8 := least(p_cost, v_capacity);
  v_spent float8 := p_cost_ahead + v_cost;
  v_usable float8 := case when v_cost > 0 then floor(v_capacity / v_cost + 1e-9) * v_cost else v_capacity end;
  v_left float8;
  v_least int;
  v_most int;
begin
  if p_cost_ahead = 0 then
    least_s := coalesce(greatest(extract(epoch from (p_gate ->> 'next_at')::timestamptz - p_at)::float8, 0), 0);
    most_s := least_s + 0.5;
  elsif v_calendar is not null then
    v_left := greatest(v_capacity - case when _calendar_begins_at(v_calendar, p_at) > p_now then 0 else v_used end, 0);
    -- how many windows later; a million are more than anybody waits for
    v_least := greatest(least(ceil((v_spent - v_left) / v_capacity - 1e-9), 1e6), 0);
    v_left := case when v_cost > 0 then floor(v_left / v_cost + 1e-9) * v_cost else v_left end;
    v_most := greatest(least(ceil((v_spent - v_left) / v_usable - 1e-9), 1e6), 0);
    least_s := case when v_least = 0 then 0
      else extract(epoch from _calendar_ends_at(v_calendar, p_at, v_least - 1) - p_at) end;
    most_s := 0.5 + case when v_most = 0 then 0
      else extract(epoch from _calendar_ends_at(v_calendar, p_at, v_most - 1) - p_at) end;
  elsif (p_gate #>> '{limit,sliding}')::boolean then
    least_s := greatest(ceil(v_spent / v_capacity - 1e-9) - 1, 0) * v_per;
    most_s := (v_spent + case when v_after >= v_per then 0 else v_used end) / v_usable;
    most_s := case when most_s <= 1 then 0 else most_s * v_per * 65 / 64 end + 0.5;
  else
    least_s := greatest((v_spent - least(v_capacity, v_capacity - v_used + v_rate * v_after)) / v_rate, 0);
    most_s := least_s * 1.03 + v_cost / v_rate * (least_s > 0)::int + 0.5;
    least_s := greatest(least_s * 0.98 - 0.1, 0);
  end if;
end
$$;

-- For how many seconds a partition has admitted jobs at a steady pace, by how much of their count has decayed. `p_jobs` is its
-- decayed count, and `p_total` is how many it ever admitted. Null: the count does not tell.
--
-- At a steady pace the part that is left after x mean lifetimes is (1 - e^-x) / x. Newton's method goes down to x from above.
-- Jobs from a time before only make the result longer.
create or replace function _counted_seconds(p_jobs float8, p_total float8, p_half_life float8)
returns float8 language plpgsql immutable as $$
declare
  v_left float8 := p_jobs / nullif(p_total, 0);
  v_x float8;
  v_gone float8;
begin
  if v_left > 0.002 and v_left < 0.9999 then
    v_x := least(1 / v_left, 2 * (1 / v_left - 1)); -- no less than the result
    for v_nth in 1 .. 4 loop
      v_gone := exp(-v_x);
      v_x := v_x - (1 - v_gone - v_left * v_x) / (v_gone - v_left);
    end loop;
  end if;
  return v_x * p_half_life / ln(2);
end
$$;
