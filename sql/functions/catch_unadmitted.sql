-- A job of a policy's task that starts without having been admitted: added by graphile_worker.add_job in a trigger or in
-- another language, by the worker's crontab, retried after its slot was given back, or put in the place of an admitted
-- one under its key. Called before its task runs, and says what is to become of it:
--
--   admitted     it holds its slots now, and runs
--   taken_over   a copy is staged, under the id returned; the original is to complete without running
--   ungoverned   the policy is switched off: it runs, and holds nothing
--   gone         Graphile Worker has it no more: while this process was stopped its pool was counted dead, and another one
--                ran the job to its end. It is to complete without running
--
--   p_job_id, p_revision   Graphile Worker's row, as it was fetched
--   p_attempt, p_pool_id   which attempt starts, and where: see _start_attempt
--   p_batch       the job as _stage takes it, in a batch of one
--   p_unmanaged   enforce: it goes at once where it would not overtake anybody and every gate has room for it, else it
--                   is taken over and admitted in its turn;
--                 run: it goes at once, past the gates, and counts in flight;
--                 reject: it is taken over and set aside, until somebody reschedules or removes it
--
-- Returned with it: the admission under which the job has a slot, null where it has none. A job that took the place of an
-- admitted one has that one's slot, whatever becomes of it: its end gives it back. Under the same limits it runs in it;
-- under others it needs room there as well, and holds both.
--
-- Whoever comes first takes the job over, and once only: the original's row stays noted until Graphile Worker has it no
-- more, also when the copy ran long ago and a crash brings the original back. Its revision is noted with it, because the
-- next job of its key may get the same row.
--
-- Order: the router's lock (only where the partition is new or its limits changed), the partition, limiters ascending,
-- in-flight rows.
create or replace function :DISPATCH_POLICY_SCHEMA._catch_unadmitted(
  p_job_id bigint, p_revision int, p_attempt int, p_pool_id text, p_batch json, p_unmanaged text, p_now timestamptz,
  out verdict text, out staged_id bigint, out admission bigint
) language plpgsql
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies;
  v_key text := p_batch #>> '{partitions,0,key}';
begin
  -- one that is taken over, or that no policy governs, holds the slot of the job it replaced until it ends
  admission := (select f.admission from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = p_job_id);
  if not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id) then
    verdict := 'gone';
    return;
  end if;
  select * into v_policy from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = p_batch ->> 'policy';
  if not v_policy.enabled then
    verdict := 'ungoverned';
    return;
  end if;
  -- a policy nobody has declared yet has no limits to look at; its jobs wait for them
  if v_policy.id is not null and p_unmanaged <> 'reject' and not exists (
    select from :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs o
    where o.job_id = p_job_id and o.revision = p_revision
  ) then
    staged_id := nextval(
      pg_get_serial_sequence(format('%I._private_staged_jobs', :'DISPATCH_POLICY_SCHEMA'), 'id'));
    begin
      verdict := case when :DISPATCH_POLICY_SCHEMA._let_in(
        v_policy, v_key, p_job_id, staged_id, p_revision, p_batch, p_unmanaged, p_now) then 'admitted' end;
    exception when lock_not_available or deadlock_detected then
      verdict := null;   -- it fails for no lock: it would lose an attempt. A copy waits for its turn
    end;
    if verdict = 'admitted' then
      select s.admission into admission from :DISPATCH_POLICY_SCHEMA._start_attempt(
        p_job_id, p_revision, p_attempt, p_pool_id) s;
      perform :DISPATCH_POLICY_SCHEMA._drop_older(p_job_id);
      return;
    end if;
  end if;
  verdict := 'taken_over';
  staged_id := :DISPATCH_POLICY_SCHEMA._take_over(p_job_id, p_revision, p_batch, p_unmanaged = 'reject');
end
$$;

-- Whether a job gets a slot at its start: the one of the job it replaced, one past the gates, or one by them. It waits half
-- a second at most for what others hold.
create or replace function :DISPATCH_POLICY_SCHEMA._let_in(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_key text, p_job_id bigint, p_staged_id bigint, p_revision int,
  p_batch json, p_unmanaged text, p_now timestamptz
) returns boolean language plpgsql
set lock_timeout = '500ms' as $$
declare
  v_cost float8 := coalesce((p_batch #>> '{jobs,0,cost}')::float8, 1);
begin
  perform :DISPATCH_POLICY_SCHEMA._bring_up_to_date(p_policy, p_batch, coalesce(p_now, clock_timestamp()));
  if :DISPATCH_POLICY_SCHEMA._inherit_slot(p_policy, p_key, p_job_id, p_staged_id, p_revision) then
    return true;
  elsif p_unmanaged = 'run' then
    perform :DISPATCH_POLICY_SCHEMA._hold_slot((p_policy).name, p_key, p_job_id, p_staged_id, p_revision, v_cost);
    return true;
  end if;
  return :DISPATCH_POLICY_SCHEMA._admit_on_the_spot(
    p_policy, p_key, p_job_id, p_staged_id, p_revision, v_cost, p_now);
end
$$;

-- Brings partition and limiters to what this job's context says, as routing its arrival would; with it goes what else
-- waits to be routed for the partition (a pause of one that was not there yet).
create or replace function :DISPATCH_POLICY_SCHEMA._bring_up_to_date(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_batch json, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_state record;
  v_id uuid;
  v_arrivals :DISPATCH_POLICY_SCHEMA._private_arrivals[];
begin
  select * into v_state from json_to_record(p_batch #> '{partitions,0}')
    as k (key text, shard text, context jsonb, weight float8, limits jsonb);
  v_id := :DISPATCH_POLICY_SCHEMA._partition_id((p_policy).name, v_state.key);
  if exists (
    select from :DISPATCH_POLICY_SCHEMA._private_partitions p where p.id = v_id and p.limits = v_state.limits
  ) then
    return;
  end if;
  perform :DISPATCH_POLICY_SCHEMA._take_turn((p_policy).id, 'route');
  insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (
    policy, partition_id, key, shard, version, context, weight, limits)
  values ((p_policy).name, v_id, v_state.key, v_state.shard, coalesce((p_batch ->> 'version')::int, 0), v_state.context,
    v_state.weight, v_state.limits);
  perform from :DISPATCH_POLICY_SCHEMA._private_partitions p where p.id = v_id for no key update;
  with consumed as (
    delete from :DISPATCH_POLICY_SCHEMA._private_arrivals a
    where a.policy = (p_policy).name and a.partition_id = v_id returning a
  )
  select array_agg(c.a) into v_arrivals from consumed c;
  perform :DISPATCH_POLICY_SCHEMA._apply_arrivals(p_policy, v_arrivals, p_now);
end
$$;

-- Admits one job that Graphile Worker has started already: only where nothing stops its partition, none of the
-- partition's own jobs and nobody else waits for one of its limiters, and all have room. A partition that a tick is at
-- has no time for it.
create or replace function :DISPATCH_POLICY_SCHEMA._admit_on_the_spot(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_key text, p_job_id bigint, p_staged_id bigint, p_revision int,
  p_cost float8, p_now timestamptz
) returns boolean language plpgsql as $$
declare
  v_partition :DISPATCH_POLICY_SCHEMA._private_partitions;
  v_limiter_ids bigint[];
  v_limiters :DISPATCH_POLICY_SCHEMA._private_limiter_now[];
  v_now timestamptz;
begin
  select * into v_partition from :DISPATCH_POLICY_SCHEMA._private_partitions p
  where p.id = :DISPATCH_POLICY_SCHEMA._partition_id((p_policy).name, p_key)
  for no key update skip locked;
  if v_partition.id is null then
    return false;
  end if;
  v_limiter_ids := :DISPATCH_POLICY_SCHEMA._lock_limiters(array[v_partition.id]);
  v_now := coalesce(p_now, clock_timestamp());
  v_limiters := array(
    select l from :DISPATCH_POLICY_SCHEMA._limiters_now((p_policy).id, v_limiter_ids, v_now, false) l);
  if greatest((p_policy).paused_until, v_partition.paused_until, v_partition.held_until) > v_now
    or v_partition.probing or v_partition.head_id < 9223372036854775807
    or :DISPATCH_POLICY_SCHEMA._known_outcomes(p_policy, array[v_partition.id]) = '{}'
    or exists (select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = any(v_limiter_ids))
    or exists (
      select from unnest(v_limiter_ids) u (id)
      left join unnest(v_limiters) l on l.id = u.id
      where l.id is null
        or :DISPATCH_POLICY_SCHEMA._lacks_room(
          l.kind, l.slots, l.reserved_for, l.tokens, l.capacity, l.rate, v_partition.id, p_cost))
  then
    return false;
  end if;
  perform :DISPATCH_POLICY_SCHEMA._charge(
    p_policy, array[v_partition.id], v_limiters,
    array[row(null, p_staged_id, v_partition.id, 1, 0, v_now, p_cost, true)
      :::DISPATCH_POLICY_SCHEMA._private_candidate],
    array[row(p_job_id, p_staged_id, true, true, p_revision):::DISPATCH_POLICY_SCHEMA._private_admission],
    v_now, false, nextval(format('%I._private_ticks', :'DISPATCH_POLICY_SCHEMA')));
  return true;
end
$$;

-- A job that took the place of an admitted one, in its row under its key, has that one's slot where its own limiters are
-- among those that the slot counts for. It is an admission of its own then: the end of the job that was there gives
-- nothing back.
create or replace function :DISPATCH_POLICY_SCHEMA._inherit_slot(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_key text, p_job_id bigint, p_staged_id bigint, p_revision int
) returns boolean language plpgsql as $$
begin
  update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set
    staged_id = p_staged_id, admission = :DISPATCH_POLICY_SCHEMA._admission_now(), revision = p_revision,
    attempt = null, pool_id = null, started_at = null, missing_since = null
  from :DISPATCH_POLICY_SCHEMA._private_partitions p
  where f.job_id = p_job_id and p.id = f.partition_id
    and p.id = :DISPATCH_POLICY_SCHEMA._partition_id((p_policy).name, p_key)
    and f.limiter_ids @> array(
      select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
      where l.id = any(p.limiter_ids) and l.kind <> 'throttle');
  return found;
end
$$;

-- A job that runs takes the place of an older one of its key that is staged: of one that was added when it was not there.
-- One that was admitted is older itself.
create or replace function :DISPATCH_POLICY_SCHEMA._drop_older(p_job_id bigint) returns void language plpgsql as $$
declare
  v_older_ids bigint[] := array(
    select s.id from :GRAPHILE_WORKER_SCHEMA.jobs j
    join :DISPATCH_POLICY_SCHEMA._private_staged_jobs s on s.job_key = j.key
    where j.id = p_job_id and :DISPATCH_POLICY_SCHEMA._staged_id_of(j.flags) is null
      and (s.known_job_id, s.known_revision) is distinct from (j.id, j.revision)
    for update of s skip locked);
begin
  perform :DISPATCH_POLICY_SCHEMA._drop_staged(v_older_ids) where v_older_ids <> '{}';
end
$$;

-- Stages a copy of the job, once. Its place in the queue, its key, flags and remaining attempts go along, and so does its
-- age among the jobs of its key. Where a later one of its key is staged already, that one stays.
create or replace function :DISPATCH_POLICY_SCHEMA._take_over(
  p_job_id bigint, p_revision int, p_batch json, p_set_aside boolean
) returns bigint language plpgsql as $$
declare
  v_staged_id bigint;
  v_replaces boolean := exists (
    select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.job_key = p_batch #>> '{jobs,0,jobKey}');
begin
  insert into :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs as o (job_id, revision) values (p_job_id, p_revision)
  on conflict (job_id) do update set revision = excluded.revision, staged_id = null, taken_over_at = excluded.taken_over_at
  where o.revision <> excluded.revision;
  if not found then
    return (select o.staged_id from :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs o where o.job_id = p_job_id);
  end if;
  select s.id into v_staged_id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = p_job_id and j.key = s.job_key
  where (s.known_job_id, s.known_revision) is not distinct from (p_job_id, p_revision)
    or :DISPATCH_POLICY_SCHEMA._staged_id_of(j.flags) is not null;
  if found then
    update :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs o set staged_id = v_staged_id where o.job_id = p_job_id;
    return v_staged_id;
  end if;
  select s.id into v_staged_id from :DISPATCH_POLICY_SCHEMA._stage_batch(
    p_batch ->> 'policy', (p_batch ->> 'version')::int, p_batch -> 'partitions', p_batch -> 'jobs', 'replace') s;
  perform :DISPATCH_POLICY_SCHEMA._count_pending(p_batch ->> 'policy', case when v_replaces then 0 else 1 end);
  update :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs o set staged_id = v_staged_id where o.job_id = p_job_id;
  update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s set known_job_id = p_job_id, known_revision = p_revision
  where s.id = v_staged_id;
  if p_set_aside then
    update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    set due = false, retry_at = 'infinity', failures = 1,
      error = format('added past the policy, as job %s of Graphile Worker, which its "unmanaged" rejects', p_job_id)
    where s.id = v_staged_id;
  end if;
  return v_staged_id;
end
$$;

-- Originals that Graphile Worker has no more need no note.
create or replace function :DISPATCH_POLICY_SCHEMA._forget_taken_over() returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
  delete from :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs o
  where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = o.job_id);
$$;
