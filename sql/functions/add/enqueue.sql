-- A call of jobs is staged, within the bounds of its policy.

-- Stages one policy's jobs of a call, with the rights of the schema's owner: whoever may call it needs no right on a table. It
-- believes task, partition and limits, because only JavaScript can work them out. Of a process that has another version than the
-- one in force it believes neither partition nor limits: its jobs wait until a tick loop works them out (_leader_keys).
--
-- A job that a full backlog drops has no id. One that is dropped because its key is remembered has the id of the earlier one,
-- and a `job`.
--
--   p_ends   the transaction is this call alone, so a job may go at once. A transaction that has written before is another
--            one: its caller is wrong
create or replace function :DISPATCH_POLICY_SCHEMA.enqueue(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text, p_ends boolean default false
) returns setof staging language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies;
  v_generation int;
  v_jobs json := p_jobs;
  v_kept json;
  v_remembered staging[];
  v_admits boolean;   -- false: not before pools have said what they run
  v_mode text := p_mode;
begin
  if current_setting('dispatch_policy.server', true) is distinct from :'DISPATCH_POLICY_SCHEMA' then
    v_admits := _meet_server();
  end if;
  if p_mode = 'unsafe_dedupe' then
    v_mode := coalesce((   -- without a key there is nothing to keep
      select p_mode from json_array_elements(p_jobs) j where j.value ->> 'jobKey' is not null limit 1), 'replace');
  end if;
  select * into v_policy from policies p where p.name = p_policy;
  if p_version <> v_policy.version and _leader_keys(v_policy) then   -- without its partitions
    return query select s.* from :DISPATCH_POLICY_SCHEMA.enqueue(
      p_policy, v_policy.version, '[]', p_jobs, p_mode) s;
    return;
  end if;
  v_generation := _generation_of(v_policy, p_version);
  -- Locks in the order of docs/engine.md: the turns of a strict backlog, job keys, staged jobs.
  if v_policy.enabled and v_policy.strict_pending and (v_mode = 'unsafe_dedupe' or v_policy.unique_for is not null) then
    perform _lock_pending(v_policy, p_partitions);
  end if;
  if v_policy.enabled and v_policy.unique_for is not null then
    perform _lock_unique_keys(v_policy, p_jobs);
  end if;
  -- An expired job keeps none out, also while the policy is off. This waits for its row: a pass or a sweep may be about to delete
  -- it, and a new job that was taken for known beside it would be lost.
  if v_mode = 'unsafe_dedupe' then
    perform _drop_as('expired', array(
      select s.id from staged_jobs s
      where s.job_key in (select j.value ->> 'jobKey' from json_array_elements(p_jobs) j)
        and s.expires_at <= clock_timestamp()
      order by s.job_key for update));
  end if;
  if not v_policy.enabled then
    return query select s.* from _add_past_gates(p_policy, p_version, p_partitions, p_jobs, v_mode) s;
    return;
  end if;
  if v_policy.unique_for is not null then
    v_remembered := _drop_remembered(v_policy, p_partitions, p_jobs);
    if cardinality(v_remembered) > 0 then
      return query select s.* from unnest(v_remembered) s;
      v_jobs := _jobs_without(p_jobs, v_remembered);
      if v_jobs is null then
        return;
      end if;
    end if;
  end if;
  if v_policy.max_pending is not null or v_policy.max_pending_in_all is not null then
    v_kept := _make_room(v_policy, p_partitions, v_jobs, v_mode);
    return query
    select s.* from _not_added(p_policy, p_partitions, v_jobs) s
    where s.n not in (select k.n from _job_records(v_kept) k);
    v_jobs := v_kept;
  end if;
  if v_jobs::text = '[]' then
    return;
  -- a job that is left of several may have its limits from another one's partition
  elsif length(p_jobs::text) < 10000 and json_array_length(p_jobs) = 1 and p_jobs -> 0 ->> 'jobKey' is null then
    -- the rest is asked last, because in a busy policy most calls end here
    if p_ends and v_admits is not false and pg_current_xact_id_if_assigned() is null
      and current_setting('transaction_isolation') = 'read committed'
      and _goes_at_once(v_policy, clock_timestamp())
      and exists (select from leases l where l.policy = p_policy and l.expires_at > clock_timestamp()) then
      return query select s.* from _admit_at_once(p_policy, v_generation, p_partitions, p_jobs, null) s;
      if found then
        return;
      end if;
    end if;
    return query select s.* from _stage_one(
      p_policy, v_generation, p_partitions, v_jobs,
      _is_droppable(v_policy.when_full, v_policy.max_pending_in_all)) s;
  elsif v_mode = 'unsafe_dedupe' then
    return query select s.* from _stage_deduped(p_policy, v_generation, p_partitions, v_jobs) s;
  else
    perform _count_removed(array(   -- another policy's job may have the key
      select s.task_identifier from _job_records(v_jobs) j
      join staged_jobs s on s.job_key = j."jobKey"
      where _is_of_another(v_policy, s.task_identifier)), '{}')
    from policies p where p.max_pending_in_all is not null limit 1;
    return query select s.* from _stage_batch(
      p_policy, v_generation, p_partitions, v_jobs, v_mode) s;
    perform _know_unstaged(v_policy, v_jobs);
    if v_policy.cancels_after is not null or strpos(v_jobs::text, '"cancelsAfter"') > 0 then
      perform _cancel_older(v_policy, v_jobs);
    end if;
  end if;
  if v_policy.unique_for is not null then
    perform _remember_staged(v_policy, v_jobs);
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.enqueue from public;

-- Passes the jobs of a policy that is switched off to Graphile Worker. That replaces staged jobs of their keys, or keeps them in
-- mode unsafe_dedupe.
create or replace function _add_past_gates(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text
) returns setof staging language plpgsql as $$
declare
  v_jobs json := p_jobs;
  v_known json;
  v_rows staging[];
  v_others bigint[] := '{}';
begin
  if p_mode = 'unsafe_dedupe' then
    select json_agg(j.value) filter (where s.id is null), json_agg(j.value) filter (where s.id is not null)
    into v_jobs, v_known
    from json_array_elements(p_jobs) j
    left join staged_jobs s on s.job_key = j.value ->> 'jobKey';
    if v_known is not null then
      return query select s.* from _known_jobs(p_policy, p_partitions, v_known) s;
    end if;
  end if;
  if v_jobs is not null then
    v_rows := array(select s from _stage_plain(v_jobs, p_mode) s);
    if p_mode = 'unsafe_dedupe' then   -- a job outside the policy is not shown
      v_others := array(
        select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.id in (select s.id from unnest(v_rows) s)
          and not _has_task(p_policy, j.task_identifier));
      return query
      select a.* from unnest(v_rows) s
      join _not_added(p_policy, p_partitions, v_jobs) a on a.n = s.n
      where s.id = any (v_others);
    end if;
    return query
    select s.n, s.staged, s.id, s.task_identifier, s.queue_name, s.run_at, s.max_attempts, s.job_key, s.priority, s.flags,
      s.created_at, s.policy, s.partition, s.shard,
      -- the payload of a replaced job may be merged into it
      (select json_object_agg(f.key, f.value) from json_each(s.job) f where f.key <> 'payload'), s.admitted
    from unnest(v_rows) s where s.id <> all (v_others);
  end if;
end
$$;

-- Adds to Graphile Worker the jobs of a staging call that have no policy, or one that is switched off.
--
--   p_payloads   a job's payload stands here at place "p", counted from 1, unless it is its own "payload": within another json
--                text, PostgreSQL refuses NUL and half a surrogate pair, which it takes as json
create or replace function _stage_plain(p_jobs json, p_mode text, p_payloads text[] default null)
returns setof staging language plpgsql as $$
#variable_conflict use_column
declare
  v_job record;
  v_keys text[] := array(
    select j."jobKey" from _job_records(p_jobs) j where j."jobKey" is not null order by 1);
begin
  -- a caller who may only add jobs to Graphile Worker replaces no staged job
  if v_keys <> '{}' and p_mode <> 'unsafe_dedupe' and has_function_privilege(
    '_drop_replaced(text[])', 'execute') then
    perform _drop_replaced(v_keys);
  end if;
  if p_mode = 'unsafe_dedupe' then
    -- Each call locks its key. In the order in which they were given, two calls with the same keys would deadlock.
    for v_job in
      select j.* from _plain_records(p_jobs, p_payloads) j order by j."jobKey" nulls first, j.n
    loop
      return query select v_job.n, false, a.id, v_job.task, v_job."queueName", a.run_at, a.max_attempts::int, a.key,
          a.priority::int, v_job.flags, a.created_at, null::text, null::text, null::text, row_to_json(a), false
        from :GRAPHILE_WORKER_SCHEMA.add_job(
          v_job.task, v_job.payload, v_job."queueName", v_job."runAt", v_job."maxAttempts", v_job."jobKey",
          v_job.priority, v_job.flags, p_mode) a;
    end loop;
    return;
  end if;
  return query
  with spec as materialized (
    select row_number() over () as place, j.* from _plain_records(p_jobs, p_payloads) j
  )
  select j.n, false, a.id, j.task, j."queueName", a.run_at, a.max_attempts::int, a.key, a.priority::int, j.flags,
    a.created_at, null::text, null::text, null::text, row_to_json(a.job), false
  from (
    select x.*, x as job, row_number() over () as place from :GRAPHILE_WORKER_SCHEMA.add_jobs(
      array(select row(j.task, j.payload, j."queueName", j."runAt", j."maxAttempts"::smallint, j."jobKey",
          j.priority::smallint, j.flags):::GRAPHILE_WORKER_SCHEMA.job_spec from spec j order by j.place),
      p_mode = 'preserve_run_at') x
  ) a
  join spec j on j.place = a.place;
end
$$;

-- Keeps a policy's backlog within its bound, in the producer's transaction: returns the jobs that may be staged. It drops the
-- others or older ones, or raises.
--
-- Pending jobs are those that committed transactions and this one have staged. So producers that stage at the same time may go
-- past the bound together; in a strict policy they wait for each other instead. Lanes of a partition count together once they
-- are routed, and in a strict policy at once.
--
-- A job whose key is staged already takes that one's place. With unsafe_dedupe, a job whose key is anywhere changes nothing.
-- Retries and copies do not count as new: no producer could add them again. A job whose partition is not known yet counts only
-- for the bound over all.
create or replace function _make_room(
  p_policy policies, p_partitions json, p_jobs json, p_mode text
) returns json language plpgsql as $$
declare
  v_name text := (p_policy).name;
  v_max int := (p_policy).max_pending;
  v_max_in_all int := (p_policy).max_pending_in_all;
  v_oldest boolean := (p_policy).when_full = 'drop_oldest';
  v_pending_in_all int;
  v_kept json;
  v_full_ones jsonb;   -- the partitions that have no room, or too many jobs
  v_fresh int;         -- how many of the kept jobs take no other's place
  v_excess int;
  v_gone int := 0;
  v_full record;
  v_keys text[] := array(
    select j.value ->> 'jobKey' from json_array_elements(p_jobs) j where j.value ->> 'jobKey' is not null);
begin
  if (p_policy).strict_pending then
    perform _lock_pending(p_policy, p_partitions);
  end if;
  if v_max_in_all is not null then
    v_pending_in_all := (
      select coalesce(sum(d.jobs), 0) from pending d where d.policy = v_name);
  end if;
  with sent as materialized (
    select (k.ordinality - 1)::int as p, k.key, _partition_id(v_name, k.key, k.lane) as id
    from rows from (json_to_recordset(p_partitions) as (key text, lane text)) with ordinality k
  ),
  coming as materialized (
    select distinct a.key, a.partition_id from arrivals a
    where (p_policy).keyed_scopes and (p_policy).strict_pending and a.policy = v_name
      and a.key in (select s.key from sent s)
  ),
  part as materialized (
    select k.p, k.key, i.ids,
      -- There may be more than the bound, from before it was set or by an overshoot. At most 1,000 a call are dropped.
      case when v_max is not null then _pending_of(
        i.ids, case when v_oldest then v_max + 1000 else v_max end) end as pending
    from sent k
    cross join lateral (select case when (p_policy).keyed_scopes then array(
        select unnest(_lanes(v_name, k.key)) union select s.id from sent s where s.key = k.key
        union select c.partition_id from coming c where c.key = k.key order by 1)
      else array[k.id] end as ids) i
  ),
  job as materialized (
    select j.ordinality as place, j.value, (j.value ->> 'p')::int as p,
      j.value ->> 'jobKey' is not null and case when p_mode = 'unsafe_dedupe'
        then exists (select from _jobs_of_key(j.value ->> 'jobKey'))
        else exists (
          select from staged_jobs s
          where s.job_key = j.value ->> 'jobKey'
            and not _is_of_another(p_policy, s.task_identifier)) end as replaces
    from json_array_elements(p_jobs) with ordinality j
  ),
  -- if the oldest are dropped, the newest are kept
  in_partition as materialized (
    select j.*, k.ids, k.key, k.pending,
      row_number() over (
        partition by k.key, case when k.key is null then j.p end order by case when v_oldest then -j.place else j.place end)
        <= coalesce(case when k.key is null then null when v_oldest then v_max else v_max - k.pending end, 2147483647)
        as fits
    from job j left join part k on k.p = j.p where not j.replaces
  ),
  in_all as materialized (
    select i.*, i.fits and count(*) filter (where i.fits) over (order by case when v_oldest then -i.place else i.place end)
      <= coalesce(case when v_oldest then v_max_in_all else v_max_in_all - v_pending_in_all end, 2147483647) as kept
    from in_partition i
  ),
  tally as (   -- added: kept; dropped: not kept; over: of these, those that the partition itself has no room for
    select i.ids, i.key, i.pending,
      count(*) filter (where i.kept) as added, count(*) filter (where not i.kept) as dropped,
      count(*) filter (where not i.fits) as over,
      case when v_oldest then greatest(i.pending + count(*) filter (where i.kept) - v_max, 0) else 0 end as excess
    from in_all i group by i.ids, i.key, i.pending
  )
  select
    coalesce((
      select json_agg(j.value order by j.place) from job j
      where j.replaces or j.place in (select i.place from in_all i where i.kept)), '[]'),
    (select jsonb_agg(to_jsonb(t)) from tally t where t.dropped > 0 or t.excess > 0),
    (select count(*) from in_all i where i.kept)
  into v_kept, v_full_ones, v_fresh;
  if v_full_ones is not null and (p_policy).when_full = 'reject' then
    perform _raise_full(p_policy, v_full_ones, v_pending_in_all);
  end if;
  v_excess := v_pending_in_all + v_fresh - v_max_in_all;
  for v_full in select t.* from jsonb_to_recordset(v_full_ones) t (ids uuid[], key text, dropped int, excess int, added int)
  loop
    v_gone := v_gone
      + _drop_oldest(v_name, v_full.ids, v_full.excess, v_keys, v_full.added);
    if v_full.dropped > 0 then
      perform _tell_dropped(v_name, coalesce(_newest_lane((p_policy).id, v_full.key), v_full.ids[1]), v_full.key,
        'max_pending', v_full.dropped);
    end if;
  end loop;
  v_excess := v_excess - v_gone;
  if v_oldest and v_excess > 0 then
    perform _drop_oldest(
      v_name, null, least(v_excess, v_fresh + 1000), v_keys, greatest(v_fresh - v_gone, 0));
  end if;
  if v_full_ones is not null then
    perform _notify(v_name);
  end if;
  if p_mode <> 'unsafe_dedupe' then   -- _stage_deduped knows which of these are staged
    perform _count_pending(v_name, v_fresh);
  end if;
  return v_kept;
end
$$;

-- Stages jobs, and passes on those of tasks without a policy, in the caller's transaction and with the caller's rights. If the
-- calling process knows no policy of a task, the policies in the database count.
--
-- If the policy's backlog has no bound, it only inserts, and takes no lock that another session can wait for, but for two: a job
-- key that is already staged locks that one row, and `unsafe_dedupe` first locks and deletes expired jobs of its job keys. Both
-- lock in the order of the job keys. The batches of a call are staged in the order of their policies, else two calls could wait
-- for each other's rows.
--
--   p_batches   json array, one batch per policy (and one, with policy null, for tasks without a policy here):
--     { "policy": text, "version": int,
--       "partitions": [{ "key", "lane", "shard", "context", "weight", "limits" }], with "like" instead of "limits" if the limits
--         are those of another partition: its place
--       "jobs": [{ "n": place in the caller's input, "task", "p": index into partitions, "payload", "queueName",
--                  "runAt" or "wait" (seconds), "maxAttempts", "jobKey", "priority", "flags", "cost",
--                  "expiresAt" or "expiresAfter" (seconds from when it is due), "byDeadline", "deadline", "cancelsAfter",
--                  of a debounced job "wait" and "maxWait" (seconds from the first add of its key) }] }
--   p_payloads  of jobs without a policy, as _stage_plain takes them
--   p_mode      replace, preserve_run_at or unsafe_dedupe, as Graphile Worker's
create or replace function _stage(p_batches json, p_mode text, p_payloads text[] default null)
returns setof staging language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_batch record;
  v_places int[];   -- of the jobs in the caller's input
  v_specs :GRAPHILE_WORKER_SCHEMA.job_spec[];
  v_debounces json[];
begin
  perform _check_mode(p_mode);
  -- each json text is read as seldom as possible: to read it once more took 100,000 jobs a twentieth of the call
  for v_batch in select b.* from json_to_recordset(p_batches) b (policy text, version int, partitions json, jobs json)
    order by b.policy
  loop
    if v_batch.policy is not null then
      return query select s.* from :DISPATCH_POLICY_SCHEMA.enqueue(
        v_batch.policy, v_batch.version, v_batch.partitions, v_batch.jobs, p_mode) s;
      continue;
    end if;
    -- The calling process knows no policy of these tasks. Another process may have declared one: then they go as those of
    -- add_jobs, which also refuses what only a policy can do.
    if not exists (
      select from _job_records(v_batch.jobs) j
      left join policy_tasks t on t.task_identifier = j.task
      where t.policy_id is not null or j.expires_at is not null or j."maxWait" is not null) then
      return query select s.* from _stage_plain(v_batch.jobs, p_mode, p_payloads) s;
      continue;
    end if;
    select array_agg(j.n order by j.place), array_agg(row(
        j.task, j.payload, j."queueName", case when j."maxWait" is null then j."runAt" end, j."maxAttempts"::smallint,
        j."jobKey", j.priority::smallint, j.flags):::GRAPHILE_WORKER_SCHEMA.job_spec order by j.place),
      case when bool_or(j."maxWait" is not null) then array_agg(case when j."maxWait" is not null
        then json_build_object('waitSeconds', j.wait, 'maxWaitSeconds', j."maxWait") end order by j.place) end
    into v_places, v_specs, v_debounces
    from (
      select row_number() over () as place, p.* from _plain_records(v_batch.jobs, p_payloads) p
    ) j;
    return query
    select v_places[s.n], s.staged, s.id, s.task_identifier, s.queue_name, s.run_at, s.max_attempts, s.job_key, s.priority,
      s.flags, s.created_at, s.policy, s.partition, s.shard, s.job, s.admitted
    from _stage_specs(v_specs, p_mode, null, (
      select max(j.traceparent) from _job_records(v_batch.jobs) j),   -- one call has one trace context
      array(select j.expires_at from _job_records(v_batch.jobs) j), v_debounces) s;
  end loop;
end
$$;

-- Raises for a mode that Graphile Worker does not know, with its error.
create or replace function _check_mode(p_mode text) returns void language plpgsql as $$
begin
  if p_mode not in ('replace', 'preserve_run_at', 'unsafe_dedupe') then
    raise exception 'Invalid job_key_mode value %, expected ''replace'', ''preserve_run_at'' or ''unsafe_dedupe''.', p_mode
      using errcode = 'GWBKM';
  end if;
end
$$;

-- Stages jobs whose tasks have a policy in the database, and passes the others on to Graphile Worker, with the caller's rights.
-- `n` of a row is the job's place among the specs, from 1.
create or replace function _stage_specs(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[], p_traceparent text default null,
  p_expires_at timestamptz[] default null, p_debounces json[] default null
) returns setof staging language plpgsql as $$
begin
  return query
  with governed as materialized (
    select g.* from :DISPATCH_POLICY_SCHEMA.add_governed(
      p_specs, p_mode, p_partition_keys, p_traceparent, p_expires_at, p_debounces) g
  )
  select g.* from governed g where g.staged is not null
  union all
  select s.* from (select json_agg(g.job) as jobs from governed g where g.staged is null) plain
  cross join lateral _stage_plain(
    plain.jobs, p_mode, array(select p.payload::text from unnest(p_specs) p)) s
  where plain.jobs is not null;
end
$$;
