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
    insert into replaced_jobs (job_id)
    select m.parked_job_id from moved m
    where m.parked_job_id is not null and m.id not in (select r.staged_id from resumed r)
    on conflict (job_id) do nothing
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
  perform _drop_outlived(v_admissions);
  return v_admissions;
end
$$;
