-- How long jobs waited until their admission, how long they then waited to start, and how long they ran. The quantiles are
-- those of this minute and the five before, as far as they are folded.
create or replace function _time_metrics(p_now timestamptz, p_policy_id int)
returns table (name text, labels jsonb, value float8) language plpgsql stable as $$
begin
  return query
  with minute as not materialized (
    select p.name as policy, m.* from policies p
    join minutes m on m.policy_id = p.id
    where p_policy_id is null or p.id = p_policy_id
  ),
  total as (
    select k.name, m.policy, k.seconds, (select coalesce(sum(e.value::float8), 0) from jsonb_each_text(k.counts) e) as jobs
    from minute m
    cross join lateral (
      values ('wait_seconds', m.waits, m.wait_seconds), ('queue_lag_seconds', m.lags, m.lag_seconds),
        ('run_seconds', m.runs, m.run_seconds)
    ) k (name, counts, seconds)
    where m.minute = '-infinity'
  ),
  late as (
    select k.name, m.policy, _sum_of_counts(k.counts) as counts
    from minute m
    cross join lateral (values ('wait_seconds', m.waits), ('queue_lag_seconds', m.lags), ('run_seconds', m.runs)) k (name, counts)
    where m.minute >= date_trunc('minute', p_now) - interval '5 minutes'
    group by k.name, m.policy
  )
  select l.name, jsonb_build_object('policy', l.policy, 'quantile', q.share::text),
    _quantile(q.share, l.counts)
  from late l cross join unnest('{0.5, 0.95}'::float8[]) q (share) where l.counts <> '{}'
  union all
  select t.name || '_sum', jsonb_build_object('policy', t.policy), t.seconds from total t
  union all
  select t.name || '_count', jsonb_build_object('policy', t.policy), t.jobs from total t;
end
$$;
