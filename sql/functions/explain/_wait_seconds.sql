-- In how many seconds after `p_at` a job goes: at least, and at most, with the basis in words. So many jobs of its
-- partition, of this cost, go before it. If nobody can tell, `why` says why. `p_it` is what _explained_wait says of the job.
--
-- A job goes at the latest of its gates' times. A throttle of its partition alone gives its time by its tokens. Every other
-- gate depends on other jobs: what all of them let through is the pace at which the partition's jobs went lately. That pace
-- has the share of other partitions in it, and the workers'. It counts if another gate than that throttle has no room for all
-- of these jobs, or if other partitions or passes keep them back.
--
-- While the job's own throttle is what it waits for, the time is nearly exact, and the pace is that of the throttle. If the
-- partition was slower, something behind the throttle was, or nobody had jobs: then the time may be that of the pace.
create or replace function _wait_seconds(
  p_it jsonb, p_policy policies, p_partition partitions,
  p_cost float8, p_jobs int, p_cost_ahead float8, p_busy_since timestamptz, p_at timestamptz, p_now timestamptz,
  out least_s float8, out most_s float8, out basis text, out why text
) language plpgsql stable as $$
declare
  v_most int := case when p_jobs < 10000 then p_jobs else greatest((p_partition).staged, p_jobs) end;
  v_throttle record;
  v_by_tokens boolean;
  v_crowded boolean;
  v_filled float8 := 0;
  v_pace record;
  v_by_pace record;
begin
  -- a shared throttle is no faster than its rate
  select max(l.least_s) as least_s, max(m.most_s) filter (where g ->> 'scope' = 'partition') as most_s,
    coalesce(bool_or(g ->> 'scope' = 'partition' and g ->> 'gate' = p_it ->> 'gate'), false) as lacks
  into v_throttle from jsonb_array_elements(p_it -> 'gates') g
  cross join lateral _throttle_seconds(g, p_cost_ahead, p_cost, p_at, p_now) l
  cross join lateral _throttle_seconds(
    g, p_cost_ahead * v_most / greatest(p_jobs, 1), p_cost, p_at, p_now) m
  where (p_policy).enabled and g #>> '{limit,rate}' is not null;
  -- a token for the next job is often there, although the tokens keep back those behind it
  v_by_tokens := v_throttle.lacks or (v_throttle.most_s > 0.5 and not exists (
    select from jsonb_array_elements(p_it -> 'gates') g where (g ->> 'lacks')::boolean));
  v_crowded := coalesce((p_it #>> '{place,partitions_before}')::int, 0) > 0
    or coalesce(p_it ->> 'reason', '') in ('tick_budget', 'batch')
    or (v_throttle.most_s is null and p_jobs >= (p_policy).batch_size)
    or exists (
      select from jsonb_array_elements(p_it -> 'gates') g
      where (p_policy).enabled and not (g ->> 'scope' = 'partition' and g #>> '{limit,rate}' is not null)
        and ((g ->> 'lacks')::boolean or (g ->> 'free')::float8 < case when g #>> '{limit,rate}' is null
          then p_jobs + 1 else p_cost_ahead + least(p_cost, (g #>> '{limit,capacity}')::float8) end));
  least_s := coalesce(v_throttle.least_s, 0);
  most_s := coalesce(v_throttle.most_s, 0.5);
  basis := case when v_throttle.most_s is not null then 'the tokens of its partition' else 'the gates, which have room' end;
  if v_crowded and not v_by_tokens and exists (
    select from jsonb_array_elements(p_it -> 'gates') g
    where (g ->> 'lacks')::boolean and g #>> '{limit,rate}' is null
  ) then
    v_filled := _filled((p_partition).id, (p_policy).half_life, p_now);
  end if;
  v_pace := _own_pace(p_policy, p_partition, p_busy_since, v_filled, p_now);
  v_by_pace := _pace_seconds(   -- nulls without a pace
    p_jobs + 1, v_most + 1, v_pace.least_per_s, v_pace.most_per_s, v_pace.evidence);
  if v_by_tokens then
    if v_by_pace.least_s > most_s then
      most_s := v_by_pace.most_s;
      basis := 'the tokens of its partition, which was slower lately';
    end if;
  elsif v_crowded and v_pace.jobs is null then
    why := case when (p_policy).half_life is null then 'without fairness nobody counts how fast its partition goes'
      when v_filled >= 2 then 'too few jobs of its partition have ended lately to tell a pace'
      else 'too few jobs of its partition went lately to tell a pace' end;
  elsif v_crowded then
    least_s := greatest(least_s, v_by_pace.least_s);
    most_s := greatest(least_s, most_s, v_by_pace.most_s);
    basis := 'the pace of its partition, about ' || round(v_pace.jobs) || ' jobs lately';
  end if;
end
$$;
