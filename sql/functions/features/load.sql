-- The load of policies that record it.

-- Adds what these events of a policy say to its load. Of each minute a hundred partitions have rows, and all others share one.
-- Those that have a row of the minute keep it. Then come those that had one of the minute before, so that a partition is not in
-- and out, and then those with the most jobs.
create or replace function _events_to_load(p_events events[]) returns void language plpgsql volatile as $$
begin
  with change as materialized (
    select e.policy_id, date_trunc('minute', e.at) as minute, e.partition_id, extract(second from e.at)::smallint as second,
      case when e.kind = 'came' then (e.facts ->> 'jobs')::int else 0 end as came,
      case when e.kind = 'came' then (e.facts ->> 'cost')::float8 else 0 end as cost,
      case e.kind when 'admitted' then 1 when 'came' then coalesce((e.facts ->> 'admitted')::int, 0) else 0 end as admitted,
      case when e.kind = 'ended' then 1 else 0 end as ended,
      case when e.kind = 'ended' then (e.facts ->> 'seconds')::float8 else 0 end as run_seconds
    from unnest(p_events) e
    where e.kind in ('came', 'admitted')
      or (e.kind = 'ended' and e.facts ->> 'ok' is not null and e.facts ->> 'seconds' is not null)
  ),
  known as materialized (
    select j.*, exists (
        select from load l
        where (l.policy_id, l.minute, l.partition_id) = (j.policy_id, j.minute, j.partition_id)) as has_row,
      exists (
        select from load l
        where (l.policy_id, l.minute, l.partition_id)
          = (j.policy_id, j.minute - interval '1 minute', j.partition_id)) as had_row
    from (
      select c.policy_id, c.minute, c.partition_id, sum(c.came + c.admitted + c.ended) as jobs
      from change c group by c.policy_id, c.minute, c.partition_id
    ) j
  ),
  there as materialized (
    select m.policy_id, m.minute, (
        select count(*) from load l where (l.policy_id, l.minute) = (m.policy_id, m.minute)) as n
    from (select distinct c.policy_id, c.minute from change c) m
  ),
  placed as materialized (
    select x.policy_id, x.minute, x.partition_id,
      case when x.has_row or x.place + t.n <= 100 then x.partition_id
        else '00000000-0000-0000-0000-000000000000' end as row_id
    from (
      select k.*, row_number() over (
        partition by k.policy_id, k.minute, k.has_row order by k.had_row desc, k.jobs desc, k.partition_id) as place
      from known k
    ) x join there t on (t.policy_id, t.minute) = (x.policy_id, x.minute)
  ),
  by_second as materialized (
    select c.policy_id, c.minute, p.row_id, c.second, sum(c.came)::int as came, sum(c.cost) as cost,
      sum(c.admitted) as admitted, sum(c.ended) as ended, sum(c.run_seconds) as run_seconds
    from change c
    join placed p on (p.policy_id, p.minute, p.partition_id) = (c.policy_id, c.minute, c.partition_id)
    group by c.policy_id, c.minute, p.row_id, c.second
  )
  insert into load as l (policy_id, minute, partition_id, seconds, came, cost, admitted, ended, run_seconds)
  select b.policy_id, b.minute, b.row_id,
    coalesce(array_agg(b.second order by b.second) filter (where b.came > 0), '{}'),
    coalesce(array_agg(b.came order by b.second) filter (where b.came > 0), '{}'),
    sum(b.cost), sum(b.admitted), sum(b.ended), sum(b.run_seconds)
  from by_second b group by b.policy_id, b.minute, b.row_id order by b.policy_id, b.minute, b.row_id
  on conflict (policy_id, minute, partition_id) do update set
    seconds = l.seconds || excluded.seconds, came = l.came || excluded.came, cost = l.cost + excluded.cost,
    admitted = l.admitted + excluded.admitted, ended = l.ended + excluded.ended,
    run_seconds = l.run_seconds + excluded.run_seconds;
end
$$;

-- What diff replays: the load of the last `p_seconds`, and the policy, its partitions and the operators' limits as of now.
-- Null if the policy records no load.
--
--   partitions   "waiting": jobs that are staged and due. "row": its row in `load`; the zero uuid has the others
--   runs         seconds that runs of the same time took, those of all partitions together: quantiles. Empty: none ended
create or replace function :DISPATCH_POLICY_SCHEMA.recorded_load(p_policy text, p_seconds float8) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_policy policies := _policy(p_policy);
  v_now timestamptz := statement_timestamp();
  v_from timestamptz := date_trunc('minute', v_now - make_interval(secs => least(p_seconds, v_policy.load_kept_for)));
begin
  if v_policy.load_kept_for is null then
    return null;
  end if;
  return jsonb_build_object(
    'now', v_now, 'from', v_from, 'definition', v_policy.definition,
    'settings', jsonb_build_object(
      'halfLifeSeconds', v_policy.half_life, 'admissionBatchSize', v_policy.batch_size,
      'tickAdmissionBudget', v_policy.admission_budget),
    'runs', (
      select coalesce(jsonb_agg(_quantile((n - 0.5) / 101, r.counts, r.longest) order by n), '[]')
      from (
        select _sum_of_counts(m.runs) as counts, max(m.run_max) as longest from minutes m
        where m.policy_id = v_policy.id and m.minute >= v_from
      ) r cross join generate_series(1, 101) n where r.counts <> '{}'),
    'load', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'minute', l.minute, 'row', l.partition_id, 'seconds', l.seconds, 'came', l.came, 'cost', l.cost,
        'admitted', l.admitted, 'ended', l.ended, 'runSeconds', l.run_seconds) order by l.minute, l.partition_id), '[]')
      from load l where l.policy_id = v_policy.id and l.minute >= v_from),
    'partitions', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'row', q.id, 'key', q.key, 'shard', q.shard, 'context', q.context, 'weight', q.weight, 'limits', q.limits,
        'waiting', q.staged + coalesce((
          select sum(a.jobs) from arrivals a where a.policy = v_policy.name and a.partition_id = q.id), 0)
      ) order by q.id), '[]')
      from partitions q
      where q.policy_id = v_policy.id and q.id = any(array(
        select l.partition_id from load l where l.policy_id = v_policy.id and l.minute >= v_from
        union
        (select w.id from partitions w
        where w.policy_id = v_policy.id and w.staged > 0 order by w.staged desc limit 100)))),
    'overrides', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'gate', o.gate, 'key', o.scope_key, 'where', o.context, 'set', o.set, 'from', nullif(o.from_at, '-infinity'),
        'until', nullif(o.until_at, 'infinity'), 'setAt', o.set_at) order by o.id), '[]')
      from overrides o where o.policy_id = v_policy.id and o.until_at > v_from));
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.recorded_load from public;
