-- When a waiting job starts, as json: `estimate` with `from`, `until` and `basis`, or null with `no_estimate`, why not, in words.
-- `p_it` is what _explained_wait says of the job, `p_stop` what stops its partition, `p_ahead` what goes before it.
--
-- It goes after all that go before, from now on, or from the end of a stop. If it is due later, it also goes after those
-- that are due until then, from its time on. It waits for a worker slot after that.
create or replace function _estimate(
  p_it jsonb, p_stop jsonb, p_ahead record, p_policy policies,
  p_partition partitions, p_job staged_jobs,
  p_now timestamptz
) returns jsonb language plpgsql stable as $$
declare
  -- from then on jobs go; a pause shows, a hold behind it may last longer
  v_goes_at timestamptz := greatest(
    p_now, (p_stop ->> 'until')::timestamptz, (p_partition).held_until, (p_partition).breaker_until);
  v_jobs int := p_ahead.jobs + p_ahead.later_jobs;
  v_why text := _no_estimate(p_it, p_stop, p_policy, p_partition, p_job, v_jobs = 0, p_now);
  v_wait record;
  v_then record;
  v_until_s float8;
  v_basis text;
  v_lag float8 := _start_lag(p_policy, (p_job).task_identifier, p_now);
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
      when v_goes_at in ((p_partition).held_until, (p_partition).breaker_until) then 'the end of the hold, and ' else 'the end of the pause, and ' end
    || v_wait.basis;
  if (p_job).run_at > v_goes_at and extract(epoch from (p_job).run_at - v_goes_at) + v_then.most_s >= v_until_s then
    v_until_s := extract(epoch from (p_job).run_at - v_goes_at) + v_then.most_s;
    v_basis := 'the time at which it is due' || case when v_then.most_s > 0.5 then ', and ' || v_then.basis else '' end;
  end if;
  v_until_s := v_until_s + v_lag * 2; -- the lag of a job varies much
  if p_it -> 'ticked_by' = 'null' then
    v_until_s := v_until_s + 60;
    v_basis := v_basis || ', and a tick each minute';
  end if;
  if v_until_s > 31536000 then
    return jsonb_build_object('estimate', null, 'no_estimate', 'it may take longer than a year');
  end if;
  v_until := v_goes_at + make_interval(secs => v_until_s);
  v_changes_at := _limit_changes_at(
    (p_policy).id, (p_partition).context, p_it -> 'gates', p_now);
  if v_changes_at < v_until then
    return jsonb_build_object('estimate', null, 'no_estimate', 'a limit changes at ' || date_trunc('second', v_changes_at));
  end if;
  return jsonb_build_object('no_estimate', null, 'estimate', jsonb_build_object(
    'from', least(greatest(v_goes_at + make_interval(secs => v_wait.least_s + v_lag / 2), (p_job).run_at), v_until),
    'until', v_until, 'basis', v_basis));
end
$$;
