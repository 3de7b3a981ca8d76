-- For how many seconds jobs have waited in staging, by reason. Until it was due, a job was not_due. From then on its
-- partition's reasons and stops count. What they leave is in_line: nothing held the partition back, and others went first.
create or replace function _waited(
  p_pasts past[], p_now timestamptz
) returns table (staged_id bigint, waited jsonb) language sql stable as $$
  with job as materialized (
    select k.staged_id, k.policy_id, k.partition_id, least(k.since, p_now) as since, least(k.ready_at, p_now) as ready_at
    from unnest(p_pasts) k
  ),
  until_now as materialized (
    select q.partition_id, _reasons_until(q.partition_id, p_now) as waited
    from (select distinct j.partition_id from job j) q
  ),
  part as materialized (
    select j.staged_id, e.key as reason, e.value::numeric as seconds
    from job j join until_now u on u.partition_id = j.partition_id cross join jsonb_each_text(u.waited) e
    union all
    select j.staged_id, e.key, -e.value::numeric
    from job j
    cross join lateral jsonb_each_text(_reasons_until(j.partition_id, j.ready_at)) e
    union all
    select j.staged_id, s.reason, s.seconds
    from job j
    cross join lateral _stopped(j.policy_id, j.partition_id, j.ready_at, p_now) s
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
    select j.staged_id, 'in_line', extract(epoch from p_now - j.ready_at) - coalesce(g.seconds, 0)
    from job j left join (
      select x.staged_id, sum(x.seconds) as seconds from summed x group by x.staged_id
    ) g on g.staged_id = j.staged_id
  )
  select w.staged_id, jsonb_object_agg(w.reason, w.seconds) from whole w where w.seconds > 0 group by w.staged_id;
$$;
