-- Turns arrivals into partitions and limiters. Runs in a transaction of its own, one router per policy at a time.
--
-- Returns -1 when another router is at work (the caller comes back: arrivals it was told of may be left), else how many
-- arrivals it consumed and partitions it woke: as many as `p_max` or more means call again. 0: nothing is left that it
-- can do; what others hold locked stays for a later pass.
--
-- An open transaction delays only what it has locked. The router never waits for a partition: it passes by the arrivals
-- of one that is locked, and reads on. Limits come after, in a later statement: limiters ascending, and only those whose
-- numbers differ and come from an earlier arrival. For these it waits for moments (see _route_batch).
--
--   p_times   false: limiters' wake-up times stay. Where the same transaction goes on to admit (the SQL function tick)
--             it would hold limiters out of order, and deadlock with releases; the next pass sets them.
--   p_shard   the shard the caller ticks next, null: all of them. The tick loops of other shards are notified when
--             their partitions are woken.
create or replace function :DISPATCH_POLICY_SCHEMA._route(
  p_policy text, p_now timestamptz, p_max int, p_bounded boolean, p_times boolean default true,
  p_shard text default null
) returns int language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- planned anew, an idle call took 9 ms, now 2
set lock_timeout = '2s'
as $$
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies;
  v_ids bigint[];
  v_partition_ids uuid[];
  v_pause_ids bigint[];
  v_left_ids bigint[];
  v_after bigint := 0;
  v_consumed int := 0;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'dispatch_policy: routing needs READ COMMITTED, not %', current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state';
  end if;
  select * into v_policy from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = p_policy;
  if v_policy.id is null then
    perform :DISPATCH_POLICY_SCHEMA._unknown_policy(p_policy);
  end if;
  if not :DISPATCH_POLICY_SCHEMA._try_turn(v_policy.id, 'route') then
    return -1;
  end if;
  -- mostly one batch: others follow one that was full, and of which something had to be left
  for v_batch in 1..10 loop
    select array_agg(a.id), array_agg(distinct a.partition_id), array_agg(a.id) filter (where a.is_pause)
    into v_ids, v_partition_ids, v_pause_ids from (
      select a.id, a.partition_id, a.pause is not null as is_pause from :DISPATCH_POLICY_SCHEMA._private_arrivals a
      where a.policy = p_policy and a.id > v_after order by a.id limit p_max
    ) a;
    exit when v_ids is null;
    v_left_ids := :DISPATCH_POLICY_SCHEMA._route_batch(
      v_policy, v_ids, v_partition_ids, v_pause_ids, coalesce(p_now, clock_timestamp()));
    v_consumed := v_consumed + cardinality(v_ids) - cardinality(v_left_ids);
    exit when v_left_ids = '{}' or cardinality(v_ids) < p_max or v_consumed >= p_max;
    v_consumed := v_consumed + :DISPATCH_POLICY_SCHEMA._merge_arrivals(p_policy, v_left_ids);
    v_after := (select max(u.id) from unnest(v_ids) u (id));
  end loop;
  if v_policy.max_pending_in_all is not null then
    perform :DISPATCH_POLICY_SCHEMA._add_up_pending(p_policy);
  end if;
  return v_consumed
    + :DISPATCH_POLICY_SCHEMA._wake(v_policy, coalesce(p_now, clock_timestamp()), p_max, p_bounded, p_times, p_shard);
end
$$;

-- Routes these arrivals of these partitions, all at once where that is possible. Else what cannot be routed now is left:
-- the arrivals of partitions that are locked, of those that give a limiter other numbers while somebody holds it, and of
-- those that raise an error. To find these it tries the others in halves: one bad arrival would stop its whole policy.
-- Level by level, and no more than so many tries, the last of them with single partitions drawn by lot: so each pass gets
-- further, however many are bad. Returns the ids of what is left.
create or replace function :DISPATCH_POLICY_SCHEMA._route_batch(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_ids bigint[], p_partition_ids uuid[], p_pause_ids bigint[],
  p_now timestamptz
) returns bigint[] language plpgsql
set lock_timeout = '20ms' as $$
declare
  v_parts jsonb := '[]';   -- partitions that are still to be tried, in groups
  v_partition_ids uuid[] := p_partition_ids;
  v_left_ids bigint[] := '{}';
  v_tries int := 0;
  v_detail text;
  v_half int;
  v_busy_ids uuid[];
begin
  loop
    v_tries := v_tries + 1;
    begin
      -- in one subtransaction with the changes: a row that is locked outside and changed inside costs a multixact
      v_left_ids := :DISPATCH_POLICY_SCHEMA._route_part(
        p_policy, case when v_tries = 1 then p_ids else array(
          select a.id from :DISPATCH_POLICY_SCHEMA._private_arrivals a
          where a.policy = (p_policy).name and a.id = any(p_ids) and (a.partition_id in (select unnest(v_partition_ids))) is true) end,
        v_partition_ids, p_pause_ids, p_now);
    exception
      when insufficient_resources or disk_full or out_of_memory or admin_shutdown or crash_shutdown
        or invalid_transaction_state then raise;
      when others then
        get stacked diagnostics v_detail = pg_exception_detail;
        -- those that _change_limiters names
        v_busy_ids := case when v_detail like 'partitions {_%}' then substr(v_detail, 12)::uuid[] end;
        if v_busy_ids is null and cardinality(v_partition_ids) = 1 then
          v_busy_ids := v_partition_ids;
          if sqlstate not in ('55P03', '40P01') then
            raise warning 'dispatch_policy: policy % cannot route the arrivals of partition %, and leaves them for later: %',
              quote_literal((p_policy).name), v_partition_ids[1], sqlerrm;
          end if;
        end if;
        if v_busy_ids is not null then
          v_partition_ids := array(
            select u.id from unnest(v_partition_ids) u (id) where (u.id in (select unnest(v_busy_ids))) is not true);
          v_parts := v_parts || case when v_partition_ids = '{}' then '[]' else jsonb_build_array(v_partition_ids) end;
        else
          v_half := cardinality(v_partition_ids) / 2;
          v_parts := v_parts || jsonb_build_array(v_partition_ids[:v_half], v_partition_ids[v_half + 1:]);
        end if;
    end;
    exit when v_parts = '[]' or v_tries >= 60;
    if v_tries < 45 then
      v_partition_ids := array(select x::uuid from jsonb_array_elements_text(v_parts -> 0) x);
      v_parts := v_parts - 0;
    else
      v_partition_ids := array(
        select x::uuid from jsonb_array_elements(v_parts) part cross join jsonb_array_elements_text(part) x
        order by random() limit 1);
    end if;
  end loop;
  if v_tries = 1 then
    return v_left_ids;
  end if;
  return :DISPATCH_POLICY_SCHEMA._arrivals_left((p_policy).name, p_ids);
end
$$;

-- Routes these arrivals of these partitions, but for those of partitions that others have locked, and of those that are
-- being resumed (a resume removes the note of the pause). Returns the ids of what it left.
create or replace function :DISPATCH_POLICY_SCHEMA._route_part(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_ids bigint[], p_partition_ids uuid[], p_pause_ids bigint[],
  p_now timestamptz
) returns bigint[] language plpgsql as $$
declare
  v_our_ids uuid[];
  v_our_pause_ids bigint[];
  v_arrivals :DISPATCH_POLICY_SCHEMA._private_arrivals[];
begin
  select coalesce(array_agg(l.id), '{}') into v_our_ids from (
    select p.id from :DISPATCH_POLICY_SCHEMA._private_partitions p
    where p.id = any(p_partition_ids) order by p.id for no key update skip locked
  ) l;
  -- those that exist and are locked by others wait for the next pass; those that do not exist are ours to make
  v_our_ids := v_our_ids || array(
    select u.id from unnest(p_partition_ids) u (id)
    where not exists (select from :DISPATCH_POLICY_SCHEMA._private_partitions p where p.id = u.id));
  if p_pause_ids is not null then
    v_our_pause_ids := array(
      select a.id from :DISPATCH_POLICY_SCHEMA._private_arrivals a
      where a.policy = (p_policy).name and a.id = any(p_pause_ids) for update skip locked);
    v_our_ids := array(
      select u.id from unnest(v_our_ids) u (id)
      where u.id not in (
        select a.partition_id from :DISPATCH_POLICY_SCHEMA._private_arrivals a
        where a.policy = (p_policy).name and a.id = any(p_pause_ids) and a.id <> all (v_our_pause_ids)));
  end if;
  with consumed as (
    delete from :DISPATCH_POLICY_SCHEMA._private_arrivals a
    where a.policy = (p_policy).name and a.id = any(p_ids)
      -- by hash: compared with an array, 10,000 new partitions took half a second
      and (a.partition_id in (select unnest(v_our_ids))) is true
    returning a
  )
  select coalesce(array_agg(c.a), '{}') into v_arrivals from consumed c;
  perform :DISPATCH_POLICY_SCHEMA._apply_arrivals(p_policy, v_arrivals, p_now);
  if cardinality(v_arrivals) = cardinality(p_ids) then
    return '{}';
  end if;
  return :DISPATCH_POLICY_SCHEMA._arrivals_left((p_policy).name, p_ids);
end
$$;

-- Those of these arrivals that are still there.
create or replace function :DISPATCH_POLICY_SCHEMA._arrivals_left(p_policy text, p_ids bigint[]) returns bigint[]
language plpgsql stable as $$   -- planned once a session, as the rest of the router
begin
  return array(
    select a.id from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.policy = p_policy and a.id = any(p_ids));
end
$$;

-- One note in place of many, of partitions whose arrivals had to be left: so that a hot tenant whose partition is locked
-- for an hour does not make each router read its arrivals of that hour. Routed, it does what they would have done. Notes
-- of stops and outcomes stay as they are. Returns how many notes are gone.
create or replace function :DISPATCH_POLICY_SCHEMA._merge_arrivals(p_policy text, p_ids bigint[]) returns int
language plpgsql as $$
declare
  v_gone int;
begin
  with note as materialized (
    select a.* from :DISPATCH_POLICY_SCHEMA._private_arrivals a
    where a.policy = p_policy and a.id = any(p_ids) and a.pause is null and a.outcome is null
  ),
  newest as materialized (
    select distinct on (n.partition_id) n.partition_id, n.id from note n
    order by n.partition_id, (n.limits is not null) desc, n.version desc, n.id desc
  ),
  first as materialized (
    select distinct on (n.partition_id) n.partition_id, n.head_priority, n.head_run_at, n.head_id from note n
    order by n.partition_id, n.head_priority, n.head_run_at, n.head_id
  ),
  work as materialized (
    select n.partition_id, min(n.due_at) as due_at, min(n.min_cost) as min_cost, (array_agg(n.shard order by n.id))[1] as shard,
      bool_or(n.head_changed) as head_changed
    from note n group by n.partition_id having count(*) > 1
  ),
  gone as (
    delete from :DISPATCH_POLICY_SCHEMA._private_arrivals a
    where a.policy = p_policy and a.id = any(p_ids)
      and (a.id in (
        select n.id from note n join work w on w.partition_id = n.partition_id
        where n.id not in (select k.id from newest k))) is true
    returning 1
  ),
  kept as (
    update :DISPATCH_POLICY_SCHEMA._private_arrivals a set
      due_at = w.due_at, min_cost = w.min_cost, shard = w.shard, head_priority = f.head_priority,
      head_run_at = f.head_run_at, head_id = f.head_id, head_changed = w.head_changed
    from newest k join work w on w.partition_id = k.partition_id join first f on f.partition_id = k.partition_id
    where a.policy = p_policy and a.id = k.id and a.id = any(p_ids)
  )
  select count(*) into v_gone from gone;
  return v_gone;
end
$$;
