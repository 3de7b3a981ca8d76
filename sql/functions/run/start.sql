-- Starts that the admission does not vouch for.

-- Decides about a job of a policy's task that starts without an admission. Called before its task runs.
--
-- Such a job was added by graphile_worker.add_job in a trigger or in another language, or by the worker's crontab. Or it
-- was retried after its slot was freed. Or it replaced an admitted job under its key.
--
--   admitted     it has its slots now, and runs
--   copied   a copy is staged, under the id returned; the original completes without running
--   ungoverned   the policy is switched off, and no copy was staged before: it runs without a slot
--   gone         Graphile Worker does not have it any more. While this process was stopped, its pool counted as dead, and
--                another one ran the job to its end. Or a newer one wins (`whenRunning`), see _stage_copy. It does not run
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
-- has that one's slot, whatever the verdict, and its end frees the slot. If its limits are others, it needs room there as well,
-- and occupies both.
--
-- If another version is in force than the one that this pool has, a pool with that one works out where the copy belongs
-- (_leader_keys).
--
-- Where the newest job of a key wins (`whenRunning`), a job with a key is always copied: in staging it cancels the older run, and
-- waits for its end.
--
-- A job is copied only once, by whoever comes first. Its row in superseded_jobs stays until Graphile Worker does not
-- have the original any more, because a crash may bring that back after the copy has run.
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
  v_partition_id uuid := _partition_id(
    p_batch ->> 'policy', p_batch #>> '{partitions,0,key}', p_batch #>> '{partitions,0,lane}');
  v_was_copied boolean;
  v_rejects boolean;
  v_cancels boolean;
  v_elsewhere boolean;   -- whether a process that has the version in force says where it belongs
  v_parked_id bigint;
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
  v_was_copied := exists (select from superseded_jobs o where o.job_id = p_job_id and o.revision = p_revision);
  if not v_policy.enabled and not v_was_copied then
    verdict := 'ungoverned';
    return;
  end if;
  -- A job that was admitted came by the policy, although somebody has touched its row since, or freed its slot.
  v_rejects := p_unmanaged = 'reject' and not exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = p_job_id and _is_ours(j.flags, j.created_at, j.key));
  v_cancels := v_policy.cancels_after is not null and p_unmanaged <> 'run' and not v_rejects
    and p_batch #>> '{jobs,0,jobKey}' is not null;
  v_elsewhere := p_unmanaged <> 'run' and (p_batch ->> 'version')::int <> v_policy.version
    and _leader_keys(v_policy);
  if v_elsewhere then
    p_batch := (p_batch::jsonb || '{"partitions": []}')::json;
  end if;
  -- a policy that nobody has declared yet has no limits; its jobs wait for them
  if v_policy.id is not null and not v_rejects and not v_elsewhere and not v_was_copied and v_cancels is not true then
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
        v_policy, v_partition_id, p_job_id, staged_id, p_revision, p_batch, p_unmanaged, p_now) then
        raise exception using errcode = 'DPOUT';
      end if;
      v_parked_id := _parked_row_of(p_job_id);
      if v_parked_id is not null then   -- it leaves staging, and goes on
        if (select s.id from staged_jobs s where s.id = v_parked_id for update skip locked) is null then
          raise exception using errcode = 'DPOUT';
        end if;
        perform _drop_staged(array[v_parked_id], null);
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
      -- A staged job of its key is older if it was added when this one was not there. But a running job that was admitted is the
      -- older one itself.
      perform _drop_staged(array(
        select s.id from :GRAPHILE_WORKER_SCHEMA.jobs j
        join staged_jobs s on s.job_key = j.key
        where j.id = p_job_id and not _is_ours(j.flags, j.created_at, j.key)
          and (s.known_job_id, s.known_revision) is distinct from (j.id, j.revision)
        for update of s skip locked));
    end if;
    if verdict is not null then
      return;
    end if;
  end if;
  verdict := 'copied';
  begin
    v_payload := coalesce(p_payload, _stored_payload(p_job_id, p_pool_id));
    staged_id := _stage_copy(p_job_id, p_revision, p_batch, v_payload, v_rejects, v_cancels);
    verdict := case when staged_id is null and v_cancels then 'gone' else verdict end;
    if v_cancels and exists (select from staged_jobs s where s.id = staged_id and s.job_key is not null) then
      perform _cancel_older(v_policy, p_batch -> 'jobs', true);
    end if;
    -- staging may wait for long, and whoever has the job by now may have found no copy
    if v_payload is null or not _keeps_job(p_job_id, p_attempt, p_pool_id, p_locked_at) then
      raise exception using errcode = 'DPOUT';
    end if;
  exception when sqlstate 'DPOUT' then
    verdict := 'reassigned';
  end;
end
$$;

-- Whether a job that Graphile Worker has started gets a slot: that of the job it replaced, one past the gates, or one by them.
-- It waits for locked limiters for half a second at most, and not for a partition that a tick has locked.
--
-- By its gates it goes as one that goes in its add, but the ahead bound does not count: _admit_few does the rest. What that
-- does not know, it raises as DPOUT: then the job is staged, and the next pass decides.
--
-- A job that took an admitted one's place needs no further slot where that one has its own. It pays its tokens.
create or replace function _admit_start(
  p_policy policies, p_partition_id uuid, p_job_id bigint, p_staged_id bigint, p_revision int,
  p_batch json, p_unmanaged text, p_now timestamptz
) returns boolean language plpgsql
set lock_timeout = '500ms' as $$
declare
  v_now timestamptz := coalesce(p_now, clock_timestamp());
  v_partition partitions;
  v_limiters limiters[];
  v_before in_flight_jobs;
  v_line claimed;
  v_new staged_jobs;
begin
  if p_unmanaged <> 'run' and not _meet_server() then
    return false;
  end if;
  v_new.cost := coalesce((p_batch #>> '{jobs,0,cost}')::float8, 1);
  perform _bring_up_to_date(p_policy, p_partition_id, p_batch, v_now);
  if _inherit_slot(p_policy, p_partition_id, p_job_id, p_staged_id, p_revision, v_now) then
    return true;
  elsif p_unmanaged = 'run' then
    perform _occupy_slot(p_partition_id, p_job_id, p_staged_id, p_revision, v_new.cost);
    return true;
  end if;
  select * into v_partition from partitions p
  where p.id = p_partition_id for no key update skip locked;
  if v_partition.id is null then
    return false;
  end if;
  v_limiters := _lock_limiters(v_partition.limiter_ids);
  v_now := coalesce(p_now, clock_timestamp());
  if greatest((p_policy).paused_until, v_partition.stopped_until) > v_now
    or v_partition.probing or v_partition.head_id < (select h.id from _no_head() h)
    or _known_outcomes(p_policy, array[v_partition.id]) = '{}'
    -- in strict order also a job counts that is not routed yet, or that waits for its retry
    or ((p_policy).job_order = 'strict' and (
      exists (
        select from staged_jobs s
        where s.partition_id = any(_siblings(v_partition.id)) and s.id <> p_staged_id and s.due)
      or exists (
        select from _waiting_heads(_siblings(v_partition.id)) h where h.id <> p_staged_id)))
    or exists (select from partitions q where q.blocked_on = any(v_partition.limiter_ids)) then
    return false;
  end if;
  v_before := _end_slot(p_job_id, null, null);
  v_line := _as_claimed(v_partition, 0);
  v_line.limiter_ids := _slots_beyond(
    array(select u.id from unnest(v_line.limiter_ids) with ordinality u (id, n) join unnest(v_limiters) l on l.id = u.id order by u.n),
    array(select b.id from unnest(v_before.limiter_ids) b (id) where b.id not in (select l.id from unnest(v_limiters) l where l.by_tokens)));
  v_new.id := p_staged_id;
  v_new.partition_id := v_partition.id;
  v_new.run_at := v_now;
  v_new.priority := 0;
  v_new.parked_job_id := p_job_id;
  perform _admit_few(p_policy, array[v_line], v_limiters, null, v_new, false, v_now);
  perform _keep_slots(p_job_id, p_revision, v_before);
  insert into activity (policy_id, at, admitted) values ((p_policy).id, v_now, 1);
  if (p_policy).recorded then   -- it never was in staging
    insert into events (policy_id, at, kind, partition_id, facts)
    values ((p_policy).id, v_now, 'came', v_partition.id, jsonb_build_object('jobs', 1, 'cost', v_new.cost, 'admitted', 1));
  end if;
  return true;
end
$$;

-- Occupies slots for a job that runs, as its pool says, and has none: a promotion has lost its admission, see _say_runs. Past
-- the limits: it runs. Its end frees them.
create or replace function _occupy_run(
  p_pool_id text, p_job_id bigint, p_revision int, p_attempt int, p_admission bigint, p_staged_id bigint, p_batch json
) returns void language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '500ms' as $$
declare
  v_policy policies;
  v_id uuid := _partition_id(p_batch ->> 'policy', p_batch #>> '{partitions,0,key}', p_batch #>> '{partitions,0,lane}');
begin
  select * into v_policy from policies p where p.name = p_batch ->> 'policy';
  if v_policy.id is null or not v_policy.enabled or exists (select from in_flight_jobs f where f.job_id = p_job_id) then
    return;
  end if;
  perform _bring_up_to_date(v_policy, v_id, p_batch, clock_timestamp());
  perform _occupy_slot(v_id, p_job_id, coalesce(p_staged_id, p_job_id), p_revision,
    coalesce((p_batch #>> '{jobs,0,cost}')::float8, 1), p_admission, p_attempt, p_pool_id);
end
$$;

-- Gives partition and limiters the numbers of this job's context, as the router would. It routes whatever else is staged
-- for the partition with it, such as a pause from before the partition existed.
create or replace function _bring_up_to_date(
  p_policy policies, p_id uuid, p_batch json, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_state record;
  v_ids uuid[];
  v_arrivals arrivals[];
begin
  select * into v_state from json_to_record(p_batch #> '{partitions,0}')
    as k (key text, shard text, context jsonb, weight float8, limits jsonb);
  if exists (
    select from partitions p where p.id = p_id and p.limits = v_state.limits
      -- limits by context read the context
      and (p.context = v_state.context or not exists (
        select from overrides o
        where o.policy_id = (p_policy).id and o.context_pair is not null))
  ) then
    return;
  end if;
  perform _lock_turn((p_policy).id, 'route');
  insert into arrivals (
    policy, partition_id, key, shard, version, context, weight, limits)
  values ((p_policy).name, p_id, v_state.key, v_state.shard, 
    _generation_of(p_policy, (p_batch ->> 'version')::int), v_state.context,
    v_state.weight, v_state.limits);
  v_ids := array[p_id, _partition_id((p_policy).name, v_state.key)];   -- a stop from before the first job has the latter
  perform from partitions p where p.id = any(v_ids) order by p.id for no key update;
  with consumed as (
    delete from arrivals a
    where a.policy = (p_policy).name and a.partition_id = any(v_ids) returning a
  )
  select array_agg(c.a) into v_arrivals from consumed c;
  perform _apply_arrivals(
    p_policy, v_arrivals, _lock_known(p_policy, v_ids, p_now), p_now);
end
$$;

-- The payload of a running job as Graphile Worker stores it, with all its digits. JavaScript rounds some numbers.
--
-- Graphile Worker has no public function that shows the payload of a locked job. So this function unlocks the jobs of the
-- pool, reads the row that reschedule_jobs returns, and undoes both. No other session ever sees a job unlocked.
--
-- Null if the pool has the job no more. Raises lock_not_available if another session has one of these rows locked for a
-- while. The wait is shorter than PostgreSQL takes to look for a deadlock: this call gives way, and never the end of another
-- job.
create or replace function _stored_payload(p_job_id bigint, p_pool_id text)
returns json language plpgsql
set lock_timeout = '200ms' as $$
declare
  v_payload json;
begin
  begin
    perform :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(array[p_pool_id]);
    select j.payload into v_payload from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[p_job_id]) j;
    raise exception using errcode = 'DPOUT';   -- the variable keeps its value
  exception when sqlstate 'DPOUT' then null;
  end;
  return v_payload;
end
$$;

-- The admission whose slot is still occupied by a job's row. A job of a task without a policy has replaced the admitted job
-- there.
create or replace function _replaced_admission(p_job_id bigint, p_revision int) returns bigint
language sql stable set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select f.admission from in_flight_jobs f
  where f.job_id = p_job_id and f.revision < p_revision;
$$;

-- The jobs in flight that were cancelled, by the owners of their slots. Worker pools tell those that they run.
create or replace function _cancelled_jobs()
returns table (job_id bigint, admission bigint, by text, reason text, min_run float8) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select f.job_id, f.admission, f.cancelled_by, f.cancel_reason, f.min_run
  from in_flight_jobs f where f.cancelled_at is not null;
$$;

-- What an in-flight job needs of the share of its worker pool, at each of its gates with `perWorker`, by the numbers in force.
--
-- A pool that runs none of a scope key has room for one, also at a limit of 0. The job was admitted, and nothing else would
-- let it end.
--
--   key      what the gate counts over; null: the policy
--   forced   it was admitted past its gates: it runs all the same, and counts
create or replace function _shares_of(p_job_id bigint)
returns table (gate text, key text, max int, forced boolean) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select l.gate, case when l.breadth < 2 then l.scope_key end, greatest((n.numbers).max, 1), coalesce(f.paid ? 'forced' or f.paid ->> 'cost' = '0', false)
  from in_flight_jobs f
  join policies p on p.id = f.policy_id and p.enabled
  join limiters l on l.id = any(f.limiter_ids) and (l.numbers).per_worker
  cross join lateral _override_now(p.id, l, clock_timestamp()) o
  cross join lateral (select jsonb_populate_record(l.numbers, o.set) as numbers) n
  where f.job_id = p_job_id and (n.numbers).shadow is not true
  order by l.id;
$$;
