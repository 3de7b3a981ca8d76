-- Verbs: out of production.

-- Hands up to `count` waiting jobs of a policy back to Graphile Worker, past the policy. Failed ones keep the time of their
-- retry, and the others are as they were added. The policy must be switched off, because workers would stage the jobs again.
-- Call it until `changed` is 0. `refused` counts jobs that Graphile Worker refuses: they stay, quarantined with the error.
-- `expired` ones, which it drops, are among the `changed`. `dry_run` only counts.
--
-- It also takes a name that nobody declared, while jobs wait for it. No worker stages those jobs again.
create or replace function :DISPATCH_POLICY_SCHEMA.unstage(
  policy text, count int default 500, reason text default null, by text default null, dry_run boolean default false
) returns table (matched int, changed int, refused int, expired int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies; v_ids bigint[]; v_back record;
begin
  perform _check_count('unstage', unstage.count);
  select p.* into v_policy from policies p where p.name = unstage.policy;
  if v_policy.id is null and not exists (select from _staged_of(unstage.policy))
    and not exists (select from arrivals a where a.policy = unstage.policy) then
    perform _unknown_policy(unstage.policy);
  elsif unstage.dry_run then
    return query select count(*)::int, 0, 0, (count(*) filter (where s.expires_at <= clock_timestamp()))::int
    from _staged_of(unstage.policy) s;
    return;
  elsif v_policy.enabled then
    raise exception 'dispatch_policy: unstage: policy % is on, expected it off, or workers stage its jobs again: call switch_policy(%, false) first',
      quote_literal(unstage.policy), quote_literal(unstage.policy) using errcode = 'DPARG';
  end if;
  perform _check_isolation('unstage');
  update policies p set unstaged_at = clock_timestamp() where p.id = v_policy.id;
  v_ids := _lock_staged(unstage.policy, unstage.count);
  v_back := _unstage_what_passes(v_ids);
  matched := cardinality(v_ids);
  changed := v_back.unstaged + v_back.replaced + v_back.expired;
  refused := v_back.refused;
  expired := v_back.expired;
  perform _audit('unstage', unstage.policy, null, null, null,
    jsonb_build_object('count', unstage.count), unstage.reason, unstage.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.unstage from public;

-- Locks and returns up to so many staged jobs, of one policy or of all (null). Those that were never in quarantine come
-- first, because jobs that Graphile Worker refuses must not keep the others. Rows that another session has locked are
-- skipped.
create or replace function _lock_staged(p_policy text, p_count int) returns bigint[] language plpgsql volatile as $$
declare
  v_ids bigint[] := '{}';
  v_page bigint[];
  v_after bigint := 0;
begin
  -- another session may have a whole page locked: then the next one follows
  loop
    v_page := array(
      select s.id from _staged_of(p_policy) s where s.error is null and s.id > v_after
      order by s.id limit p_count - cardinality(v_ids));
    exit when v_page = '{}';
    v_after := v_page[cardinality(v_page)];
    v_ids := v_ids || array(
      select s.id from staged_jobs s where s.id = any(v_page) order by s.id for update skip locked);
  end loop;
  v_page := array(
    select s.id from _staged_of(p_policy) s where s.error is not null
    order by s.failures, s.id limit p_count - cardinality(v_ids));
  return v_ids || array(
    select s.id from staged_jobs s where s.id = any(v_page) order by s.id for update skip locked);
end
$$;

-- Unstages these staged jobs. Those that have expired are dropped, because Graphile Worker would run them.
--
-- If Graphile Worker refuses the jobs together, it tries halves, down to the single job. A job that is refused alone stays,
-- quarantined with the error. One that waits for another transaction stays as it is for the next call; after 40 waits the
-- others do as well. So those without a key or a queue, which wait for nobody, come first, and the others come by lot.
create or replace function _unstage_what_passes(
  p_ids bigint[], out unstaged int, out parked int, out replaced int, out refused int, out expired int
) language plpgsql
set lock_timeout = '50ms' as $$
declare
  v_expired bigint[] := array(
    select s.id from staged_jobs s where s.id = any(p_ids) and s.expires_at <= clock_timestamp() order by s.id);
  v_left bigint[] := array(select u from unnest(p_ids) u where u <> all (v_expired));
  v_free bigint[] := array(
    select s.id from staged_jobs s
    where s.id = any(v_left) and s.job_key is null and s.queue_name is null and s.parked_job_id is null order by s.id);
  v_ids bigint[] := v_free || array(select u from unnest(v_left) u where u <> all (v_free) order by random());
  v_todo jsonb := (   -- ranges of places, the last one first
    select coalesce(jsonb_agg(jsonb_build_array(x.a, x.b) order by x.a desc), '[]')
    from (values (cardinality(v_free) + 1, cardinality(v_ids)), (1, cardinality(v_free))) x (a, b) where x.a <= x.b);
  v_from int; v_to int;
  v_waits int := 0;
  v_back record;
begin
  unstaged := 0; parked := 0; replaced := 0; refused := 0;
  expired := cardinality(v_expired);
  perform _drop_as('expired', v_expired);
  while jsonb_array_length(v_todo) > 0 and v_waits < 40 loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    begin
      v_back := _unstage(v_ids[v_from:v_to]);
      unstaged := unstaged + v_back.unstaged;
      parked := parked + v_back.parked;
      replaced := replaced + v_back.replaced;
    exception when others then
      perform set_config('lock_timeout', '5ms', true);
      v_waits := v_waits + case when sqlstate = '55P03' then 1 else 0 end;
      if _concerns_all(sqlstate) then
        raise;
      elsif v_from < v_to then
        v_todo := v_todo || _halves(v_from, v_to);
      elsif sqlstate <> '55P03' then
        refused := refused + 1;
        perform _quarantine(v_ids[v_from], v_ids[v_from:v_from], sqlerrm, false, clock_timestamp());
        perform _before_change(v_ids[v_from:v_from]);
      end if;
    end;
  end loop;
end
$$;

-- Unstages all waiting jobs, removes the crontab task's job and drops the schema. One call is one bounded step: call it,
-- each time in a transaction of its own, until `dropped` is true. To end in between loses nothing, and the next call goes
-- on. Only the owner of the schema may call it.
--
-- The first step switches every policy off, so that producers add their jobs to Graphile Worker from then on. Jobs in flight
-- are in Graphile Worker already: they stay there, and run as plain jobs. It refuses while worker pools live or job groups
-- are open, unless forced.
--
--   unstaged   jobs that this step unstaged; `parked`: those that had failed, and wait there for their retry
--   replaced   they left without a trace, see _unstage
--   refused    jobs that Graphile Worker refuses. They stay, quarantined with the error, and the schema stays with them
--   unlocked   jobs that were locked by worker pools that were killed. They run again
--   tick_jobs  jobs of the crontab's task that were removed
--
-- A producer may stage between the last look and the drop, and a pool may start. So the last step locks the tables first,
-- and looks again. Whoever comes later waits until the schema is dropped, and then gets an error. It waits for the locks for
-- less than PostgreSQL takes to look for a deadlock, so that nobody who ticks is ended for it. If it does not get them, it
-- raises lock_not_available, and is tried again.
create or replace function :DISPATCH_POLICY_SCHEMA.uninstall(
  force boolean default false, count int default 500
) returns table (
  unstaged int, parked int, replaced int, refused int, expired int, unlocked int, tick_jobs int, dropped boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '900ms' set client_min_messages = 'warning' as $$
#variable_conflict use_column
declare
  v_force boolean := coalesce(uninstall.force, false);
  v_ids bigint[]; v_turns_off boolean; v_dead text[];
begin
  -- qualified: who may not use that schema is told so
  perform :DISPATCH_POLICY_INTERNAL._check_count('uninstall', uninstall.count);
  perform _check_isolation('uninstall');
  if not v_force then
    perform _refuse_live_workers('uninstall', null);
    perform _refuse_open_groups('uninstall');
  end if;
  v_turns_off := exists (select from policies p where p.enabled and not p.shared);
  update policies p set
    operator_enabled = case when p.enabled and not p.shared then false else p.operator_enabled end, unstaged_at = clock_timestamp();
  if v_turns_off then
    perform _audit('uninstall', null, null, null, null, jsonb_build_object('force', uninstall.force), null, null, 0, 0);
  end if;
  unlocked := 0; tick_jobs := 0; dropped := false;
  v_ids := _lock_staged(null, uninstall.count);
  if v_ids <> '{}' then   -- a step of its own, without the locks below, so that it cannot be in a deadlock
    select b.* into unstaged, parked, replaced, refused, expired from _unstage_what_passes(v_ids) b;
    return next; return;
  end if;
  lock table staged_jobs, workers, superseded_jobs in access exclusive mode;
  if not v_force then
    perform _refuse_live_workers('uninstall', null);
    perform _refuse_open_groups('uninstall');
  end if;
  select b.* into unstaged, parked, replaced, refused, expired   -- what was staged meanwhile
  from _unstage_what_passes(_lock_staged(null, uninstall.count)) b;
  perform _sweep_replaced();
  dropped := not exists (select from staged_jobs)
    -- somebody has the row of a parked job locked that was replaced
    and not exists (
      select from superseded_jobs r join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = r.job_id
      where r.was_parked and j.run_at = 'infinity' and j.attempts < j.max_attempts and _is_ours(j.flags, j.created_at, j.key));
  if not dropped then
    return next; return;
  end if;
  -- for four hours nobody would unlock the jobs of worker pools that were killed
  v_dead := array(select w.pool_id from workers w where w.stale_at <= clock_timestamp());
  unlocked := (select count(*) from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = any(v_dead));
  perform :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(v_dead);
  if unlocked > 0 then
    perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', unlocked)::text);   -- unlocking does not
  end if;
  -- The danger: a job in flight that has not started keeps its flag and its times. A later installation has no slot for it,
  -- and its workers would believe it as an admitted first attempt. With a cap of 2, four ran at once. The cure: such a job
  -- gets a later updated_at, so its start asks.
  perform from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array(
    select j.id from in_flight_jobs f join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id and j.locked_at is null));
  -- The originals of jobs that were copied would run again. So they are completed, and so are the jobs of the crontab's
  -- task. Jobs that run are locked, and stay.
  perform _complete_copied(null);
  tick_jobs := (
    select count(*) from :GRAPHILE_WORKER_SCHEMA.complete_jobs(array(
      select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j where j.task_identifier = _tick_task())));
  execute format('drop schema %I, %I cascade', :'DISPATCH_POLICY_SCHEMA', :'DISPATCH_POLICY_INTERNAL');
  return next;
end
$$;

-- The crontab's task, as TICK_TASK in src/policy/job.ts names it. A test compares both.
create or replace function _tick_task() returns text language sql immutable as $$
  select 'dispatch_policy_tick';
$$;
