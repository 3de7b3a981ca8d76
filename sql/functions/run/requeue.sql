-- A worker gives a job back that its share has no slot for.

-- Stages a job again that a worker pool has fetched and does not run, because it runs its share already. The job keeps its
-- staged id, its place, its key and its flags. It gets its attempt and its tokens back, and frees its slots. Returns
-- whether it did so: if not, the job has another slot by now, or was cancelled, or another transaction has a row locked.
--
-- The original completes without running, as that of a copy (_stage_copy). If its worker dies before, the row in
-- copied_jobs keeps it from running beside the staged one.
--
--   p_gates     the gates at which the pool is full
--   p_payload   as JavaScript has read it. Null: it may have rounded a number, so the row is read
--
-- Locks: limiters ascending, the staged row of its key, Graphile Worker's rows, the in-flight row. It waits for each only
-- for a moment.
create or replace function _requeue(
  p_job_id bigint, p_revision int, p_attempt int, p_pool_id text, p_admission bigint, p_gates text[], p_payload json,
  p_now timestamptz
) returns boolean language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '250ms' as $$
declare
  v_slot in_flight_jobs;
  v_policy policies;
  v_job record;
  v_run_at timestamptz;
  v_payload json;
  v_now timestamptz;
  v_left bigint[];
begin
  perform _check_isolation('a job that is requeued');
  select f.* into v_slot from in_flight_jobs f
  where f.job_id = p_job_id and f.revision = p_revision and f.admission = p_admission;
  if not found then
    return false;
  end if;
  v_payload := coalesce(p_payload, _stored_payload(p_job_id, p_pool_id));
  perform from limiters l
  where l.id = any(v_slot.limiter_ids || _limiters_of(array[v_slot.partition_id]))
  order by l.id for no key update;
  v_now := coalesce(p_now, clock_timestamp());
  select j.* into v_job from :GRAPHILE_WORKER_SCHEMA.jobs j
  where j.id = p_job_id and j.revision = p_revision and j.attempts >= p_attempt and j.locked_by = p_pool_id;
  if not found then
    return false;
  end if;
  v_job.attempts := p_attempt;   -- whoever takes its key off uses them up
  select * into v_policy from policies p where p.id = v_slot.policy_id;
  -- the job was due: only a clock that went back says otherwise
  v_run_at := least(coalesce((v_slot.place).run_at, v_job.run_at), v_now);
  insert into copied_jobs as o (job_id, revision, staged_id)
  values (p_job_id, p_revision, v_slot.staged_id)
  on conflict (job_id) do update set
    revision = excluded.revision, staged_id = excluded.staged_id, copied_at = excluded.copied_at;
  -- what gates deny is dropped under whenBusy "skip", but for parked jobs: this one was admitted already
  if p_attempt = 1 and v_job.last_error is null
    and ((v_slot.place).expires_at is not null or v_policy.when_busy is distinct from 'skip') then
    perform _stage_requeued(v_policy, v_slot, v_job, v_payload, v_run_at, v_now);
  else
    perform _park_requeued(v_policy, v_slot, v_job, v_payload, v_run_at, v_now);
  end if;
  perform _announce_requeued(v_policy.name, v_slot, v_job.priority, v_run_at);
  perform from in_flight_jobs f
  where f.job_id = p_job_id and f.admission = p_admission and f.cancelled_at is null for update;
  if not found then
    raise exception using errcode = 'DPOUT';
  end if;
  select r.left_ids into v_left from _release(
    json_build_array(json_build_object('job', p_job_id, 'admission', p_admission, 'attempt', p_attempt,
      'settled', '{"cost": 0}'::json)), v_now) r;
  if v_left <> '{}' then
    raise exception using errcode = 'DPOUT';
  end if;
  perform _tell_moved(v_policy.id, null, p_job_id, v_slot.staged_id, (
    select s.parked_job_id from staged_jobs s where s.id = v_slot.staged_id));
  perform _admit_fewer(v_slot.limiter_ids, p_gates, v_now);
  return true;
exception when lock_not_available or deadlock_detected or sqlstate 'DPOUT' then
  return false;
end
$$;

-- Tells the router of a job that is staged again, as its partition's newest definition stands.
create or replace function _announce_requeued(
  p_policy text, p_slot in_flight_jobs, p_priority smallint, p_run_at timestamptz
) returns void language plpgsql as $$
begin
  insert into arrivals overriding user value
  select a.* from partitions q
  cross join lateral _work_arrival(
    p_policy, q.id, q.key, q.shard, 0, null, null, null, p_run_at, (p_slot).cost, true, p_priority, p_run_at,
    (p_slot).staged_id) a
  where q.id = (p_slot).partition_id;
  perform _count_pending(p_policy, 1);
  perform _notify(p_policy);
end
$$;
