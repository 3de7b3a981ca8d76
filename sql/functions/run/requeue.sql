-- A worker gives a job back that its share has no slot for.

-- Stages a job again that a worker pool has fetched and does not run, because it runs its share already. The job keeps its
-- staged id, its place, its key and its flags. It gets its attempt and its tokens back, and frees its slots. Returns
-- whether it did so: if not, the job has another slot by now, or was cancelled, or another transaction has a row locked.
--
-- The original completes without running, as that of a copy (_stage_copy). If its worker dies before, the row in
-- superseded_jobs keeps it from running beside the staged one.
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
  v_payload json;
  v_now timestamptz;
  v_staged staged_jobs;
  v_partition arrivals;   -- as its newest definition stands: it brings nothing but the job
  v_is_staged boolean;
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
  select * into v_policy from policies p where p.id = v_slot.policy_id;
  insert into superseded_jobs (job_id, revision, staged_id)
  values (p_job_id, p_revision, v_slot.staged_id)
  on conflict (job_id, was_parked) do update set revision = excluded.revision, staged_id = excluded.staged_id;
  v_partition.policy := v_policy.name;
  v_partition.version := 0;
  select q.key, q.shard into v_partition.key, v_partition.shard from partitions q where q.id = v_slot.partition_id;
  v_staged.id := v_slot.staged_id;
  v_staged.partition_id := v_slot.partition_id;
  v_staged.task_identifier := v_job.task_identifier;
  -- the job was due: only a clock that went back says otherwise
  v_staged.run_at := least(coalesce((v_slot.place).run_at, v_job.run_at), v_now);
  v_staged.max_attempts := v_job.max_attempts;
  v_staged.priority := v_job.priority;
  v_staged.cost := v_slot.cost;
  v_staged.due := true;
  v_staged.sort_at := _sort_at_again(v_policy.job_order, v_slot.sort_at);
  -- what gates deny is dropped under whenBusy "skip", but for parked jobs: this one was admitted already
  if p_attempt = 1 and v_job.last_error is null
    and ((v_slot.place).expires_at is not null or v_policy.when_busy is distinct from 'skip') then
    -- It has never run: it is as it was before. If a newer job of its key is staged, it has no key, and runs beside that one.
    v_staged.payload := v_payload;
    v_staged.queue_name := v_job.queue_name;
    v_staged.run_at_given := (v_slot.place).run_at_given;
    v_staged.job_key := v_job.key;
    v_staged.flags := _callers_flags(v_job.flags);
    v_staged.created_at := coalesce((v_slot.place).added_at, v_now);
    v_staged.known_job_id := v_job.id;
    v_staged.known_revision := v_job.revision;
    v_staged.droppable := _is_droppable(v_policy.when_full, v_policy.max_pending_in_all);
    v_staged.traceparent := _traceparent_of(v_job.flags);
    v_staged.expires_at := (v_slot.place).expires_at;
    v_is_staged := _stage_back(v_staged, v_partition);
    if not v_is_staged then
      v_staged.job_key := null;
      v_is_staged := _stage_back(v_staged, v_partition);
    end if;
    -- Graphile Worker may be taking the key off the original at this moment, for a job that is added past its policy. This one
    -- would pass for the newest of the key. Only a look after it is staged is sure.
    if v_staged.job_key is not null and not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id and j.key = v_staged.job_key) then
      raise exception using errcode = 'DPOUT';
    end if;
  else
    -- A copy is parked, with the attempts and the error that the job had: a new row of Graphile Worker's would count from 0. It
    -- has no key either if a newer job of its key is staged. One that is being added there would be overwritten: then the row
    -- is no new one.
    select j.id, j.revision into v_staged.parked_job_id, v_staged.parked_revision
    from (
      select case when not exists (select from staged_jobs s where s.job_key = v_job.key) then v_job.key end as key) k
    cross join lateral :GRAPHILE_WORKER_SCHEMA.add_jobs(array[row(
      v_job.task_identifier, v_payload, v_job.queue_name, 'infinity', v_job.max_attempts, k.key, 32767,
      _callers_flags(v_job.flags) || _ticket(
        v_slot.staged_id, _admission_now(), v_slot.partition_id, k.key,
        _trace_text(_traceparent_of(v_job.flags), coalesce((v_slot.place).added_at, v_now), v_staged.run_at, true))
    ):::GRAPHILE_WORKER_SCHEMA.job_spec]) j;
    if v_staged.parked_revision > 0 then
      raise exception using errcode = 'DPOUT';
    end if;
    if v_job.last_error is not null then   -- the one public way to write an error uses the attempts up, so it comes first
      perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[v_staged.parked_job_id], v_job.last_error);
    end if;
    perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
      array[v_staged.parked_job_id], run_at => 'infinity', attempts => p_attempt - 1);
    v_is_staged := _stage_back(v_staged, v_partition);
  end if;
  if not v_is_staged then
    raise exception using errcode = 'DPOUT';
  end if;
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
  perform _tell_moved(v_policy.id, null, p_job_id, v_slot.staged_id, v_staged.parked_job_id);
  perform _admit_fewer(v_slot.limiter_ids, p_gates, v_now);
  return true;
exception when lock_not_available or deadlock_detected or sqlstate 'DPOUT' then
  return false;
end
$$;
