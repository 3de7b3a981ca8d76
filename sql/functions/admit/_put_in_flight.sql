-- Writes the admitted jobs' in-flight rows, and returns how many of each partition there are. `kept` are the jobs that keep what
-- they had before, and pay nothing. `recounted`: how many of the jobs were in flight at a limiter already, by its id; null: none.
--
-- A job that is already in flight, under the same job key, keeps its slots and is not charged again. If its
-- partition has other limiters now, it is charged as a new one, and occupies these as well.
--
-- The danger: tokens are spent by a start, and one payment would do for several starts or for a dearer job. The cure: a
-- job that keeps the slot of one that may have run pays its tokens anew (_add_admitted tells). A dearer one pays the
-- difference.
--
-- It is longer than others, because jobs that are in flight already take a statement more.
--
--   p_paid   what the jobs have paid, if that is not their cost, see in_flight_jobs
create or replace function _put_in_flight(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[],
  p_candidates candidate[],
  p_admissions admission[], p_now timestamptz, p_paid jsonb,
  out admitted partition_admitted[], out kept bigint[], out recounted jsonb
) language plpgsql volatile as $$   -- planned as _charge, which calls it
declare
  v_admission bigint := _admission_now();
  v_moved bigint[] := '{}';
  v_paying bigint[] := '{}';   -- they keep their slots and take tokens, from which goes what was paid
  v_paid float8[] := '{}';
  v_kept bigint[] := '{}';
begin
  -- Most jobs are new to Graphile Worker. Without "on conflict" 5,000 of them take 18 ms, with it 31.
  if exists (select from unnest(p_admissions) a where a.counted) then
    with occupied as materialized (
      select f.job_id, f.limiter_ids, h.limiter_ids as new_ids, m.moves,
        case when m.anew then 0 else f.cost end as paid
      from _occupied_limiters(p_policy, p_claimed, p_limiters, p_candidates, p_admissions) h
      join in_flight_jobs f on f.job_id = h.job_id
      cross join lateral (
        select f.partition_id <> h.partition_id or not f.limiter_ids @> h.limiter_ids as moves,
          h.anew or f.attempt is not null as anew
      ) m
      where h.counted and (m.moves or m.anew or f.cost < h.cost)
      order by f.job_id for update of f
    ),
    moving as materialized (
      select * from occupied h where h.moves
    ),
    -- the slots that it already occupies are counted again below
    uncounted as (
      update limiters l set in_flight = l.in_flight - n.jobs
      from (
        select u.id, count(*)::int as jobs from moving m cross join unnest(m.limiter_ids) u (id)
        where u.id = any(m.new_ids) group by u.id
      ) n
      where l.id = n.id
      returning l.id, n.jobs
    )
    select coalesce(array_agg(h.job_id) filter (where h.moves), '{}'),
      coalesce(array_agg(h.job_id) filter (where not h.moves), '{}'),
      coalesce(array_agg(h.paid) filter (where not h.moves), '{}'),
      (select jsonb_object_agg(u.id, u.jobs) from uncounted u)
    into v_moved, v_paying, v_paid, recounted from occupied h;
    with put as (
      insert into in_flight_jobs as f
        (job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, paid, work, sort_at, admitted_at)
      select h.job_id, h.staged_id, v_admission, h.revision, h.policy_id, h.partition_id, h.limiter_ids, h.cost,
        p_paid, h.work, h.sort_at, p_now
      from _occupied_limiters(p_policy, p_claimed, p_limiters, p_candidates, p_admissions) h
      where h.counted
      order by h.job_id
      on conflict (job_id) do update set staged_id = excluded.staged_id, admission = excluded.admission,
        revision = excluded.revision, attempt = null, pool_id = null, started_at = null, missing_since = null,
        cancelled_at = null, cancelled_by = null, cancel_reason = null, admitted_at = excluded.admitted_at,
        sort_at = excluded.sort_at, policy_id = excluded.policy_id, partition_id = excluded.partition_id,
        limiter_ids = case when f.job_id = any(v_moved)
          then array(select unnest(f.limiter_ids) union select unnest(excluded.limiter_ids)) else f.limiter_ids end,
        cost = case when f.job_id = any(v_moved || v_paying) then excluded.cost else f.cost end,
        paid = _paid_again(f, excluded.paid, f.job_id = any(v_moved || v_paying)),
        work = case when f.job_id = any(v_moved) then excluded.work else f.work end
      returning f.job_id, f.xmax = 0 as fresh
    )
    select coalesce(array_agg(t.job_id) filter (where not t.fresh and t.job_id <> all(v_moved)), '{}') into v_kept
    from put t;
  end if;
  with occupancies as materialized (
    select h.*, h.job_id not in (select unnest(v_kept)) as new
    from _occupied_limiters(p_policy, p_claimed, p_limiters, p_candidates, p_admissions) h
  ),
  put as (
    insert into in_flight_jobs
      (job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, paid, work, sort_at, admitted_at)
    select h.job_id, h.staged_id, v_admission, h.revision, h.policy_id, h.partition_id, h.limiter_ids, h.cost,
      p_paid, h.work, h.sort_at, p_now
    from occupancies h where not h.counted
  )
  -- by partition, because unnesting the limiters of 5,000 jobs took as long as inserting them
  select array_agg(row(n.partition_id, n.admitted, n.first_job_id, n.jobs, n.cost)::partition_admitted)
  into admitted
  from (
    select h.partition_id, count(*)::int as admitted, min(h.job_id) as first_job_id,
      count(*) filter (where h.new)::int as jobs,
      coalesce(sum(h.cost - coalesce(v_paid[array_position(v_paying, h.job_id)], 0))
        filter (where h.new or h.job_id = any(v_paying)), 0) as cost
    from occupancies h group by h.partition_id
  ) n;
  kept := array(select unnest(v_kept) except select unnest(v_paying));
end
$$;
