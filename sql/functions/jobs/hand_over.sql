-- Jobs that were chosen move to Graphile Worker, and are in flight.

-- Marks jobs of the claimed partitions as due whose time has come. It skips locked rows. The head of a partition moves down
-- to them. At most 1,000 per partition and pass. Returns whether there were any.
create or replace function _promote(p_partition_ids uuid[], p_now timestamptz)
returns boolean language plpgsql as $$
declare
  v_cts tid[] := array(
    select x.ctid from unnest(p_partition_ids) u (id)
    cross join lateral (
      select s.ctid from staged_jobs s
      where s.partition_id = u.id and not s.due and coalesce(s.retry_at, s.run_at) <= p_now
      order by coalesce(s.retry_at, s.run_at) limit 1000
      for update skip locked
    ) x);
  v_none text;
begin
  if v_cts = '{}' then
    return false;
  end if;
  with due as (
    update staged_jobs s set due = true, retry_at = null
    where s.ctid = any(v_cts)
    returning s.partition_id, s.priority, s.run_at, s.id
  ),
  first as (
    select distinct on (d.partition_id) d.* from due d order by d.partition_id, d.priority, d.run_at, d.id
  )
  select _lower_heads(array_agg(f.partition_id), array_agg(f.priority), array_agg(f.run_at), array_agg(f.id)) into v_none from first f;
  return true;
end
$$;

-- Moves chosen jobs out of staging and into Graphile Worker, in one statement: new ones by add_jobs, parked ones by
-- reschedule_jobs.
--
-- If a worker has fetched the job of a job key meanwhile, add_jobs returns fewer rows than it got. A job without a row goes
-- back to staging. A parked job leaves without an effect if its row is not there any more. It does so too if a newer job
-- of its job key is staged or has its row. Rows that another session has locked are skipped.
--
-- The newest job of a job key counts, however it was added. So a staged job leaves without a trace if Graphile Worker has a
-- later one of its job key. A job that is added while this runs would be overwritten. In that case this raises
-- lock_not_available, and a later pass tries again.
--
-- Staged rows are found by ctid. By id, the planner reads another index if the table looks empty to vacuum. A hashed
-- sub-select checks that a ctid still has the same job: "in (...) is true" is one, and is no join. When it was compared
-- with an array, 5,000 jobs cost 130 ms, now 5.
--
-- Jobs that have neither a job key nor a parked row need none of that: see _add_admitted_plain.
--
-- It is longer than others, because each step needs the rows that the steps before it deleted or added in the same
-- statement.
create or replace function _add_admitted(
  p_candidates candidate[], p_now timestamptz
) returns admission[] language plpgsql volatile as $$
declare
  v_behind interval := _clocks_behind();
  v_from timestamptz := clock_timestamp() - v_behind - cardinality(p_candidates) * interval '1 microsecond';
  -- Who starts first, in microseconds from then, by place in the ids. No join: the planner counts an array as ten rows, and
  -- might compare each job with all.
  v_ids bigint[] := array(select c.staged_id from unnest(p_candidates) c where c.chosen order by c.staged_id);
  v_starts int[] := array(
    select row_number() over (order by c.priority, c.vt, c.run_at, c.staged_id)::int
      - case when c.overtakes then 900000 else 0 end   -- less than the second of _is_new
    from unnest(p_candidates) c where c.chosen order by c.staged_id);
  v_admission bigint := _admission_now();
  v_admissions admission[];
  v_is_raced boolean;
  v_outlived bigint[];   -- parked jobs whose rows in Graphile Worker these jobs got
begin
  if not exists (select from unnest(p_candidates) c where c.chosen and not c.is_plain) then
    return _add_admitted_plain(p_candidates, v_from, v_ids, v_starts, v_admission, p_now);
  end if;
  with moved as materialized (
    delete from staged_jobs s
    where s.ctid = any(array(
      select x.ctid from staged_jobs x
      where x.ctid = any(array(select c.ct from unnest(p_candidates) c where c.chosen))
        and (x.id in (select c.staged_id from unnest(p_candidates) c where c.chosen)) is true
        and (x.expires_at <= p_now) is not true   -- it was locked when _expire looked
      for update skip locked
    ))
    returning s.*
  ),
  -- the jobs that Graphile Worker has under these keys, and the revision that each row is about to get
  known as materialized (
    select m.id, j.id as job_id, j.next_revision, j.is_newer
    from moved m
    cross join lateral _job_of_key(m.job_key, m.known_job_id, m.known_revision) j
    where m.job_key is not null and m.parked_job_id is null
  ),
  -- The danger: the admitted job that Graphile Worker has under a key has run and failed, and its release is not flushed
  -- yet. Its successor gets its row and its slot, and would run for tokens that are spent. The cure: a job whose row has
  -- been tried pays anew. Its attempts are read under the row's lock, because a worker may run it after any other look.
  tried as materialized (
    select j.id as job_id
    from (
      select array_agg(k.job_id order by k.job_id) as ids from known k where not k.is_newer having count(*) > 0
    ) k
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(k.ids) j   -- writes only updated_at; skips those that run
    where j.attempts > 0 or j.last_error is not null
  ),
  -- If the caller gave no run_at, Graphile Worker gets the time of admission, because it runs jobs by priority and
  -- run_at. By the time of staging, a newly admitted job of an old backlog would go before jobs that wait there already.
  -- The times are a microsecond apart, so that jobs admitted together start in the order of their ranks.
  timed as materialized (
    select m.*, case when m.run_at_given then m.run_at
      else v_from + v_starts[width_bucket(m.id, (select v_ids))] * interval '1 microsecond' end as ready_at
    from moved m where m.parked_job_id is null and m.id not in (select k.id from known k where k.is_newer)
      and (select count(*) from tried) >= 0   -- read before its rows get the next jobs
  ),
  specs as materialized (
    select m.preserve_run_at, array_agg(row(
        m.task_identifier, m.payload, m.queue_name, m.ready_at, m.max_attempts, m.job_key, m.priority,
        -- a caller's flag that looks like ours would pass the job off as another
        case when m.flags is not null then array(
            select f from unnest(m.flags) f where not _is_own_flag(f)) end
          || _ticket(m.id, v_admission, m.partition_id, m.job_key,
            _trace_text(m.traceparent, m.created_at, m.run_at, m.run_at_given))
      ):::GRAPHILE_WORKER_SCHEMA.job_spec order by m.job_key nulls first, m.id) as jobs
    from (
      select t.*, _portion(sum(octet_length(t.payload::text)) over (
        order by t.job_key nulls first, t.id rows between unbounded preceding and 1 preceding)) as portion
      from timed t) m
    group by m.preserve_run_at, m.portion order by m.preserve_run_at, m.portion
  ),
  added as materialized (
    select j.id as job_id, j.key is not null as keyed, _staged_id_text(j.flags)::bigint as staged_id,
      s.preserve_run_at and j.run_at = 'infinity' as kept_parked, j.revision
    from specs s cross join lateral :GRAPHILE_WORKER_SCHEMA.add_jobs(s.jobs, s.preserve_run_at) j
  ),
  -- The rows of parked jobs, unless a newer job of their key is staged. One that Graphile Worker failed for good is as good as
  -- gone: it would have a slot and never run.
  there as materialized (
    select m.id as staged_id, m.parked_job_id as job_id, m.priority, j.revision,
      j.attempts < j.max_attempts and _is_parked(
        m.id, m.parked_revision, j.run_at, j.revision, j.last_error, j.flags) as is_parked,
      j.run_at = 'infinity' and j.locked_at is null and j.attempts < j.max_attempts as is_stopped
    from moved m
    cross join lateral (   -- one look at the index for each: a join began with all of Graphile Worker's jobs
      select j.* from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = m.parked_job_id limit 1) j
    where m.parked_job_id is not null
      and (select true from staged_jobs n where n.job_key = j.key limit 1) is null
  ),
  -- a job that keeps the time of the one it replaces may have replaced a parked one: nothing would ever run it
  unparked as materialized (
    select count(*) as jobs,
      coalesce(bool_or(j.revision <> k.revisions[array_position(k.ids, j.id)]), false) as is_raced
    from (
      select array_agg(x.job_id) as ids, array_agg(x.revision) as revisions from (
        select a.job_id, a.revision from added a where a.kept_parked
        union all
        select t.job_id, t.revision from there t where t.is_stopped and not t.is_parked
      ) x having count(*) > 0
    ) k
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(k.ids, run_at => v_from) j
  ),
  parked as materialized (
    select t.staged_id, t.job_id, t.priority, t.revision from there t where t.is_parked
  ),
  resumed as materialized (
    select j.id as job_id, k.staged_ids[width_bucket(j.id, k.ids)] as staged_id, j.revision,
      j.revision <> k.revisions[width_bucket(j.id, k.ids)] as is_raced,
      j.job_queue_id is not null or exists (
        select from jsonb_object_keys(j.flags) f where not _is_own_flag(f)) as waits_elsewhere
    from (   -- arrays, because a join compared each with each
      select p.priority, array_agg(p.job_id order by p.job_id) as ids, array_agg(p.staged_id order by p.job_id) as staged_ids,
        array_agg(p.revision order by p.job_id) as revisions
      from parked p group by p.priority
    ) k
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
      -- workers go by the clock, so a job admitted at a test's later `now` must not wait for it
      k.ids, run_at => least(p_now, clock_timestamp()) - v_behind, priority => k.priority) j
  ),
  announced as materialized (
    -- reschedule_jobs notifies no worker
    select pg_notify('jobs:insert', json_build_object('r', random(), 'count', n.jobs)::text)
    from (select (select count(*) from resumed) + (select u.jobs from unparked u) as jobs) n where n.jobs > 0
  ),
  replaced as (
    insert into superseded_jobs (job_id, was_parked)
    select m.parked_job_id, true from moved m
    where m.parked_job_id is not null and m.id not in (select r.staged_id from resumed r)
    on conflict do nothing
  ),
  back as (
    insert into staged_jobs overriding system value
    select m.* from moved m
    where m.parked_job_id is null and m.job_key is not null
      and (m.id in (select a.staged_id from added a)) is not true   -- by hash: as a join it compared each with each
      and m.id not in (select k.id from known k where k.is_newer)
  ),
  admission as (
    select a.job_id, a.staged_id, true, a.keyed, a.revision,
      (select bool_or(m.queue_name is not null or m.flags is not null) from moved m),   -- once for all
      a.staged_id in (select k.id from known k join tried t on t.job_id = k.job_id)
    from added a
    union all
    -- if it is in flight, then for the run after which it was parked
    select r.job_id, r.staged_id, true, true, r.revision, r.waits_elsewhere, true from resumed r
    -- jobs that are not there any more are no candidates any more
    union all
    select m.parked_job_id, m.id, false, false, m.parked_revision, false, false from moved m
    where m.parked_job_id is not null and (m.id in (select r.staged_id from resumed r)) is not true
    union all
    select null, k.id, false, false, null, false, false from known k where k.is_newer
  )
  select array(select a::admission from admission a),
    exists (
      select from added a left join known k on k.id = a.staged_id
      where a.keyed and _is_raced(k.job_id, k.next_revision, a.job_id, a.revision))
      or exists (select from resumed r where r.is_raced) or (select u.is_raced from unparked u),
    -- PostgreSQL skips a SELECT that nobody reads, and this one has an effect
    (select count(*) from announced)
  into v_admissions, v_is_raced;
  if v_is_raced then
    raise exception 'dispatch_policy: a job of this key was added meanwhile' using errcode = 'lock_not_available';
  end if;
  -- The danger: a job got the row of a parked one of its key. Its next retry in this row would be staged under the older job's
  -- id, and that one's group, history and `uniqueFor` would get its end. The cure: the older job leaves staging as replaced,
  -- wherever it waits. A row that another session has locked leaves at its own time.
  v_outlived := array(
    select s.id from staged_jobs s
    where s.parked_job_id = any(array(select a.job_id from unnest(v_admissions) a where a.admitted and a.revision > 0))
    order by s.id for update skip locked);
  if v_outlived <> '{}' then
    perform _drop_staged(v_outlived);
  end if;
  return v_admissions;
end
$$;

-- _add_admitted for jobs that have neither a key nor a parked row. It has no row of Graphile Worker's to look for, and no job
-- comes back. The steps for those took a quarter of the time of a small admission, also if there was none.
create or replace function _add_admitted_plain(
  p_candidates candidate[], p_from timestamptz, p_ids bigint[], p_starts int[],
  p_admission bigint, p_now timestamptz
) returns admission[] language plpgsql volatile as $$
declare
  v_admissions admission[];
begin
  with moved as materialized (
    delete from staged_jobs s
    where s.ctid = any(array(
      select x.ctid from staged_jobs x
      where x.ctid = any(array(select c.ct from unnest(p_candidates) c where c.chosen))
        and (x.id in (select c.staged_id from unnest(p_candidates) c where c.chosen)) is true
        and x.job_key is null and x.parked_job_id is null
        and (x.expires_at <= p_now) is not true   -- it was locked when _expire looked
      for update skip locked
    ))
    returning s.id, s.task_identifier, s.payload, s.queue_name, s.run_at, s.run_at_given, s.max_attempts, s.priority, s.flags,
      s.partition_id, s.traceparent, s.created_at
  ),
  specs as materialized (
    select array_agg(row(
        m.task_identifier, m.payload, m.queue_name,
        case when m.run_at_given then m.run_at
          else p_from + p_starts[width_bucket(m.id, (select p_ids))] * interval '1 microsecond' end,
        m.max_attempts, null, m.priority,
        case when m.flags is not null then array(   -- as _add_admitted
            select f from unnest(m.flags) f where not _is_own_flag(f)) end
          || _ticket(m.id, p_admission, m.partition_id, null,
            _trace_text(m.traceparent, m.created_at, m.run_at, m.run_at_given))
      ):::GRAPHILE_WORKER_SCHEMA.job_spec order by m.id) as jobs,
      bool_or(m.queue_name is not null or m.flags is not null) as waits_elsewhere
    from (
      select x.*, _portion(sum(octet_length(x.payload::text)) over (
        order by x.id rows between unbounded preceding and 1 preceding)) as portion
      from moved x) m
    group by m.portion order by m.portion
  )
  select coalesce(array_agg(row(
    j.id, _staged_id_text(j.flags)::bigint, true, false, j.revision, s.waits_elsewhere, false
  )::admission), '{}') into v_admissions
  from specs s cross join lateral :GRAPHILE_WORKER_SCHEMA.add_jobs(s.jobs) j;
  return v_admissions;
end
$$;

-- Writes the admitted jobs' in-flight rows, and returns by partition how many there are, which is the first, how many occupy new
-- slots, and what they cost. `kept` are the jobs that keep what they had before, and pay nothing. `recounted`: how many of the
-- jobs were in flight at a limiter already, by its id; null: none.
--
-- A job that is already in flight, under the same job key, keeps its slots and is not charged again. If its
-- partition has other limiters now, it is charged as a new one, and occupies these as well.
--
-- The danger: tokens are spent by a start, and one payment would do for several starts or for a dearer job. The cure: a
-- job that keeps the slot of one that may have run pays its tokens anew (_add_admitted tells). A dearer one pays the
-- difference.
--
--   p_paid   what the jobs have paid, if that is not their cost, see in_flight_jobs
create or replace function _put_in_flight(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[],
  p_candidates candidate[],
  p_admissions admission[], p_now timestamptz, p_paid jsonb,
  out partition_ids uuid[], out admitted int[], out first_job_ids bigint[], out jobs int[], out costs float8[],
  out kept bigint[], out recounted jsonb
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
        select f.partition_id <> h.partition_id or not f.limiter_ids @> h.limiter_ids
            or ((p_policy).by_cost and _slots_beyond(h.limiter_ids, f.limiter_ids) <> '{}') as moves,
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
      select u.id, count(*)::int as jobs from moving m cross join unnest(m.limiter_ids) u (id)
      where u.id = any(m.new_ids) group by u.id
    )
    select coalesce(array_agg(h.job_id) filter (where h.moves), '{}'),
      coalesce(array_agg(h.job_id) filter (where not h.moves), '{}'),
      coalesce(array_agg(h.paid) filter (where not h.moves), '{}'),
      (select jsonb_object_agg(u.id, u.jobs) from uncounted u)
    into v_moved, v_paying, v_paid, recounted from occupied h;
    perform _count_slots(array_agg(r.key::bigint), array_agg(-r.value::int)) from jsonb_each_text(recounted) r having count(*) > 0;
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
        cancelled_at = null, cancelled_by = null, cancel_reason = null, lent_until = null,
        admitted_at = excluded.admitted_at,
        sort_at = excluded.sort_at, policy_id = excluded.policy_id, partition_id = excluded.partition_id,
        limiter_ids = case when f.job_id = any(v_moved)
          then array(select u.id from unnest(f.limiter_ids) u (id) where u.id <> all (excluded.limiter_ids)) || excluded.limiter_ids
          else f.limiter_ids end,
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
  select coalesce(array_agg(n.partition_id), '{}'), array_agg(n.admitted), array_agg(n.first_job_id), array_agg(n.jobs),
    array_agg(n.cost)
  into partition_ids, admitted, first_job_ids, jobs, costs
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

-- The limiters in which each admitted job occupies a slot: none of its throttles, whose tokens do not come back. With them,
-- each release would lock and write them for nothing.
create or replace function _occupied_limiters(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[],
  p_candidates candidate[],
  p_admissions admission[]
) returns table (
  job_id bigint, staged_id bigint, policy_id int, partition_id uuid, limiter_ids bigint[], cost float8, work float8,
  counted boolean, revision int, anew boolean, sort_at timestamptz
) language sql stable as $$
  with of_partition as materialized (
    select p.id, _work_of(p_policy, p.mean_work) as work, array(
        select u.id from unnest(p.limiter_ids) u (id)
        where u.id not in (select l.id from unnest(p_limiters) l where l.tokens is not null or l.shadow_tokens is not null)) as limiter_ids
    from unnest(p_claimed) p
  )
  select a.job_id, a.staged_id, (p_policy).id, h.id, h.limiter_ids, c.cost, h.work, a.counted, a.revision, a.anew,
    case when (p_policy).job_order = 'deadline' and c.priority = -32768 then c.run_at end   -- as _next_in_order has it
  from unnest(p_admissions) a
  join unnest(p_candidates) c on c.staged_id = a.staged_id
  join of_partition h on h.id = c.partition_id
  where a.admitted;
$$;

-- Writes to the in-flight rows of admitted jobs which places they had.
create or replace function _keep_places(
  p_places place[], p_admissions admission[]
) returns void language sql volatile as $$
  update in_flight_jobs f set place = p
  from unnest(p_admissions) a join unnest(p_places) p on p.staged_id = a.staged_id
  where a.admitted and f.job_id = a.job_id
    and f.job_id = any(array(select x.job_id from unnest(p_admissions) x where x.admitted));
$$;

-- Takes few jobs out of staging, by their places in the table. Those that others have locked, or that have expired, stay.
--
--   p_starts        in the places of `p_ids`
--   jobs            the others, in that order
--   specs           as Graphile Worker gets them, in the order of staging
--   bytes           of their payloads
--   wait_elsewhere  one may wait in Graphile Worker for something else than a slot
create or replace function _take_few(
  p_cts tid[], p_ids bigint[], p_starts timestamptz[], p_admission bigint, p_now timestamptz,
  out jobs staged_jobs[], out specs :GRAPHILE_WORKER_SCHEMA.job_spec[], out bytes bigint, out wait_elsewhere boolean
) language plpgsql volatile as $$
begin
  with taken as (
    delete from staged_jobs s
    where s.ctid = any(array(
      select x.ctid from staged_jobs x
      where x.ctid = any(p_cts) and x.id = any(p_ids) and (x.expires_at <= p_now) is not true
      for update skip locked))
    returning s as job, s.id, s.payload, s.queue_name, s.flags
  )
  select coalesce(array_agg(t.job order by array_position(p_ids, t.id)), '{}'),
    array_agg(_spec_of(t.job, p_admission, p_starts[array_position(p_ids, t.id)]) order by t.id),
    sum(octet_length(t.payload::text)), bool_or(t.queue_name is not null or t.flags is not null)
  into jobs, specs, bytes, wait_elsewhere from taken t;
end
$$;

-- Adds few jobs to Graphile Worker, and puts them in flight; or only the job that is there, if `p_job_id` names it. False: that is
-- gone. `p_moved` has them as they were staged. The lists but the specs have the places of `p_ids`. `p_slots` has the limiters of
-- each, as text.
create or replace function _put_few_in_flight(
  p_policy_id int, p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_job_id bigint, p_moved staged_jobs[], p_ids bigint[],
  p_slots text[], p_works float8[], p_sort_at timestamptz, p_admission bigint, p_now timestamptz
) returns boolean language plpgsql volatile as $$
begin
  if p_job_id is not null then
    insert into in_flight_jobs (
      job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, work, admitted_at)
    select j.id, p_ids[1], p_admission, j.revision, p_policy_id, p_moved[1].partition_id, p_slots[1]::bigint[],
      p_moved[1].cost, p_works[1], p_now
    from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id;
  else
    insert into in_flight_jobs (
      job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, work, sort_at, admitted_at)
    select j.id, p_ids[x.at], p_admission, j.revision, p_policy_id, p_moved[x.at].partition_id, p_slots[x.at]::bigint[],
      p_moved[x.at].cost, p_works[x.at], p_sort_at, p_now
    from :GRAPHILE_WORKER_SCHEMA.add_jobs(p_specs) j
    cross join lateral (select array_position(p_ids, _staged_id_text(j.flags)::bigint) as at) x;
  end if;
  return found;
end
$$;

-- Of few jobs that were just put in flight what became of them.
create or replace function _few_in_flight(p_admission bigint, p_staged_ids bigint[]) returns admission[]
language plpgsql stable as $$
begin
  return array(
    select row(f.job_id, f.staged_id, true, false, f.revision, false, false)::admission
    from in_flight_jobs f where f.admission = p_admission and f.staged_id = any(p_staged_ids));
end
$$;
