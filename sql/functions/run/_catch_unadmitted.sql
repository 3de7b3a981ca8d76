-- Decides about a job of a policy's task that starts without an admission. Called before its task runs.
--
-- Such a job was added by graphile_worker.add_job in a trigger or in another language, or by the worker's crontab. Or it
-- was retried after its slot was freed. Or it replaced an admitted job under its key.
--
--   admitted     it has its slots now, and runs
--   copied   a copy is staged, under the id returned; the original completes without running
--   ungoverned   the policy is switched off, and no copy was staged before: it runs without a slot
--   gone         Graphile Worker does not have it any more. While this process was stopped, its pool counted as dead, and
--                another one ran the job to its end. It does not run
--   reassigned   it is not locked for this attempt any more: it was unlocked, and another pool may have it. It must not
--                complete here either, because that would remove it
--
--   p_job_id, p_revision   Graphile Worker's row, as it was fetched
--   p_attempt, p_pool_id   which attempt starts, and where: see _start_attempt
--   p_locked_at   see _keeps_job
--   p_batch       the job as _stage takes it, in a batch of one, without its payload
--   p_payload     its payload, apart: as a part of other JSON, PostgreSQL refuses some texts that it stores alone. Null: JavaScript
--                 may have rounded a number in it, so a copy gets what Graphile Worker stores
--   p_unmanaged   enforce: it runs at once if it overtakes nobody and every gate has room for it, else it is copied
--                   and admitted in its turn. Shadow gates and reserved slots are left to a pass, too;
--                 run: it runs at once, past the gates, and counts in flight;
--                 reject: it is copied and quarantined, until somebody reschedules or removes it
--
-- It also returns the admission under which the job has a slot, null if it has none. A job that replaced an admitted one
-- has that one's slot, whatever the verdict, and its end frees the slot. If its limits are the same, it runs in that
-- slot, unless its partition is stopped or a token is missing. If they differ, it needs room there as well, and occupies
-- both.
--
-- If another version is in force than the one that this pool has, a pool with that one works out where the copy belongs
-- (_leader_keys).
--
-- A job is copied only once, by whoever comes first. Its row in copied_jobs stays until Graphile Worker does not
-- have the original any more. A crash may bring the original back after the copy has run. The row has the revision,
-- because the next job of the key may get the original's row.
--
-- A parked job may start because somebody retried it in Graphile Worker. It is admitted under its staged id, and its staged row
-- goes. Under another id, `uniqueFor` would not remember its end.
--
-- Locks: the router's turn, the partition, limiters ascending, in-flight rows, its own staged row, which it skips if that is
-- locked. The turn is locked only if the partition is new, if its limits changed, or if its context changed while there are
-- limits by context. If it is not admitted, everything is unlocked before _stored_payload locks rows of Graphile Worker, which
-- it unlocks again at once. If it cannot, this raises lock_not_available, and the caller asks again.
create or replace function _catch_unadmitted(
  p_job_id bigint, p_revision int, p_attempt int, p_pool_id text, p_locked_at timestamptz, p_batch json, p_payload json,
  p_unmanaged text, p_now timestamptz,
  out verdict text, out staged_id bigint, out admission bigint
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies;
  v_key text := p_batch #>> '{partitions,0,key}';
  v_rejects boolean;
  v_elsewhere boolean;   -- whether a process that has the version in force says where it belongs
  v_payload json;
begin
  -- a job that is copied, or that no policy governs, occupies the slot of the job it replaced until it ends
  admission := (select f.admission from in_flight_jobs f where f.job_id = p_job_id);
  if not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id) then
    verdict := 'gone';
    return;
  end if;
  if not _keeps_job(p_job_id, p_attempt, p_pool_id, p_locked_at) then
    verdict := 'reassigned';
    return;
  end if;
  select * into v_policy from policies p where p.name = p_batch ->> 'policy';
  -- an original whose copy is staged, or was unstaged, must not run beside it
  if not v_policy.enabled and not exists (
    select from copied_jobs o
    where o.job_id = p_job_id and o.revision = p_revision
  ) then
    verdict := 'ungoverned';
    return;
  end if;
  -- A job that was admitted came by the policy, although somebody has touched its row since, or freed its slot.
  v_rejects := p_unmanaged = 'reject' and not exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = p_job_id and _is_ours(j.flags, j.created_at, j.key));
  v_elsewhere := p_unmanaged <> 'run' and (p_batch ->> 'version')::int <> v_policy.version
    and _leader_keys(v_policy);
  if v_elsewhere then
    p_batch := (p_batch::jsonb || '{"partitions": []}')::json;
  end if;
  -- a policy that nobody has declared yet has no limits; its jobs wait for them
  if v_policy.id is not null and not v_rejects and not v_elsewhere and not exists (
    select from copied_jobs o
    where o.job_id = p_job_id and o.revision = p_revision
  ) then
    -- A job that another one might not replace (unsafe_dedupe) is still the one that has the slot. Under another id it would
    -- be gone for its group.
    staged_id := coalesce((
      select f.staged_id from in_flight_jobs f
      join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
      where f.job_id = p_job_id and _is_row_of(f.revision, f.staged_id, j.revision, j.flags)
    ), _parked_row_of(p_job_id), nextval(
      pg_get_serial_sequence('staged_jobs', 'id')));
    begin
      if not _admit_start(
        v_policy, v_key, p_job_id, staged_id, p_revision, p_batch, p_unmanaged, p_now)
        or not _leave_staging(p_job_id) then
        raise exception using errcode = 'DPOUT';
      end if;
      select s.admission into admission from _start_attempt(
        p_job_id, p_revision, p_attempt, p_pool_id, p_locked_at) s;
      -- while it waited for locks, the job may have been unlocked
      verdict := case when admission is null then 'reassigned' else 'admitted' end;
      if verdict = 'reassigned' then
        raise exception using errcode = 'DPOUT';   -- the variable keeps its value
      end if;
    -- A job must not fail because a row is locked: that would cost it an attempt. So a copy waits for its turn. A job
    -- that is not admitted must not keep locks: to stage its copy may wait for an application's open transaction.
    exception when lock_not_available or deadlock_detected or sqlstate 'DPOUT' then null;
    end;
    if verdict = 'admitted' then
      perform _drop_older(p_job_id);
    end if;
    if verdict is not null then
      return;
    end if;
  end if;
  verdict := 'copied';
  begin
    v_payload := coalesce(p_payload, _stored_payload(p_job_id, p_pool_id));
    staged_id := _stage_copy(p_job_id, p_revision, p_batch, v_payload, v_rejects);
    -- staging may wait for long, and whoever has the job by now may have found no copy
    if v_payload is null or not _keeps_job(p_job_id, p_attempt, p_pool_id, p_locked_at) then
      raise exception using errcode = 'DPOUT';
    end if;
  exception when sqlstate 'DPOUT' then
    verdict := 'reassigned';
  end;
end
$$;
