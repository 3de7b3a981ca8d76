-- What is true of each policy now, or of one, and what its passes and releases have done since it was declared.
create or replace function _policy_metrics(p_now timestamptz, p_policy_id int)
returns table (name text, labels jsonb, value float8) language plpgsql stable as $$
begin
  return query
  select m.name, jsonb_build_object('policy', p.name) || m.labels, m.value
  from policies p
  left join minutes t on t.policy_id = p.id and t.minute = '-infinity'
  cross join lateral (
    values
      ('policy_info', jsonb_build_object('version', p.version::text), 1::float8),
      ('policy_enabled', '{}', case when p.enabled then 1 else 0 end),
      ('policy_paused', '{}', case when p.paused_until > p_now then 1 else 0 end),
      ('policy_has_worker', '{}', case when exists (
        select from workers w
        where w.stale_at > p_now and not w.ended and w.definitions ? p.name) then 1 else 0 end),
      ('longest_wait_seconds', '{}', (
        select extract(epoch from p_now - min(o.at)) from policy_tasks k
        cross join lateral (   -- the oldest of each task, by the index staged_jobs_by_wait
          select greatest(s.run_at, s.created_at) as at from staged_jobs s
          where s.task_identifier = k.task_identifier order by greatest(s.run_at, s.created_at) limit 1) o
        where k.policy_id = p.id and o.at <= p_now)),
      ('in_flight_jobs', '{}', (
        select l.in_flight from limiters l where l.id = p.ahead_limiter_id)),
      ('admissible_jobs', '{}', _admissible_jobs(p, p_now)),
      ('last_pass_age_seconds', '{}', extract(epoch from p_now - greatest(t.last_pass_at, (
        select max(a.at) from activity a where a.policy_id = p.id and a.passes > 0)))),
      ('staged_total', '{}', coalesce(t.staged, 0)),
      ('admitted_total', '{}', coalesce(t.admitted, 0)),
      ('quarantined_total', '{}', coalesce(t.quarantined, 0)),
      ('dropped_total', '{}', coalesce(t.dropped, 0)),
      ('expired_total', '{}', coalesce(t.expired, 0)),
      ('delayed_total', '{}', coalesce(t.delayed, 0)),
      ('finished_total', '{"outcome": "succeeded"}', coalesce(t.succeeded, 0)),
      ('finished_total', '{"outcome": "failed"}', coalesce(t.failed, 0)),
      ('ended_elsewhere_total', '{}', coalesce((
        select e.jobs from ended_elsewhere e where e.policy_id = p.id), 0)),
      ('pass_duration_seconds_sum', '{}', coalesce(t.pass_seconds, 0)),
      ('pass_duration_seconds_count', '{}', coalesce(t.passes, 0))
  ) m (name, labels, value)
  where m.value is not null and (p_policy_id is null or p.id = p_policy_id);
  return query
  select 'shadow_denied_total', jsonb_build_object('policy', p.name, 'gate', g.name),
    coalesce((t.shadow_denied ->> g.name)::float8, 0)
  from policies p
  left join minutes t on t.policy_id = p.id and t.minute = '-infinity'
  cross join lateral (
    select x.value ->> 'name' from jsonb_array_elements(p.definition -> 'gates') x where x.value #>> '{constants,shadow}' = 'true'
    union
    select jsonb_object_keys(t.shadow_denied)   -- those that are real by now
  ) g (name)
  where p_policy_id is null or p.id = p_policy_id;
  return query
  select 'left_to_pass_total', jsonb_build_object('policy', p.name, 'reason', r.reason), r.times::float8
  from policies p
  join minutes t on t.policy_id = p.id and t.minute = '-infinity'
  cross join lateral jsonb_each_text(t.left_to_pass) r (reason, times)
  where p_policy_id is null or p.id = p_policy_id;
end
$$;
