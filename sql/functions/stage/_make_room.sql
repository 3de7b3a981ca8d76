-- Holds a policy's backlog within its bound, in the producer's transaction: says which of these jobs may be staged, and
-- drops the others, or older ones, or raises. Pending is what committed transactions and this one have staged: producers
-- at the same time may together go past the bound by what they have not committed, unless the policy is strict (then
-- they wait for each other, by a row for the bound on all, and one of 1,024 for each partition: two that share one by
-- chance wait for each other, too).
--
-- A job whose key is staged already takes that one's place; with unsafe_dedupe, one whose key is anywhere changes nothing.
-- Retries and jobs taken over are not held to the bound, since they are no producer's to lose. A job whose partition is
-- still to be worked out counts for the bound on all only.
create or replace function :DISPATCH_POLICY_SCHEMA._make_room(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_partitions json, p_jobs json, p_mode text
) returns json language plpgsql as $$
declare
  v_name text := (p_policy).name;
  v_max int := (p_policy).max_pending;
  v_max_in_all int := (p_policy).max_pending_in_all;
  v_oldest boolean := (p_policy).when_full = 'drop_oldest';
  v_pending_in_all int;
  v_kept json;
  v_full jsonb;
  v_fresh int;
  v_excess int;
  v_tally record;
  v_keys text[] := array(
    select j.value ->> 'jobKey' from json_array_elements(p_jobs) j where j.value ->> 'jobKey' is not null);
begin
  if (p_policy).strict_pending then
    perform from :DISPATCH_POLICY_SCHEMA._private_turns u
    where u.policy_id = (p_policy).id and u.step = 'pending' and u.place = any(array(
      select 0 where v_max_in_all is not null
      union
      select 1 + (hashtext(k.key) & 1023) from json_to_recordset(p_partitions) k (key text) where v_max is not null))
    order by u.place for update;
  end if;
  if v_max_in_all is not null then
    v_pending_in_all := (
      select coalesce(sum(d.jobs), 0) from :DISPATCH_POLICY_SCHEMA._private_pending d where d.policy = v_name);
  end if;
  with part as materialized (
    select (k.ordinality - 1)::int as p, k.key, i.id,
      -- more than the bound: from before there was one, or an overshoot; it goes a thousand jobs a call
      case when v_max is not null then :DISPATCH_POLICY_SCHEMA._pending_of(
        i.id, case when v_oldest then v_max + 1000 else v_max end) end as pending
    from rows from (json_to_recordset(p_partitions) as (key text)) with ordinality k
    cross join lateral (select :DISPATCH_POLICY_SCHEMA._partition_id(v_name, k.key) as id) i
  ),
  job as materialized (
    select j.ordinality as place, j.value, (j.value ->> 'p')::int as p,
      j.value ->> 'jobKey' is not null and case when p_mode = 'unsafe_dedupe'
        then exists (select from :DISPATCH_POLICY_SCHEMA._jobs_of_key(j.value ->> 'jobKey'))
        else exists (
          select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
          where s.job_key = j.value ->> 'jobKey'
            and not :DISPATCH_POLICY_SCHEMA._is_of_another(p_policy, s.task_identifier)) end as replaces
    from json_array_elements(p_jobs) with ordinality j
  ),
  -- the newest are kept where the oldest are dropped
  in_partition as materialized (
    select j.*, k.id, k.key, k.pending,
      row_number() over (partition by j.p order by case when v_oldest then -j.place else j.place end)
        <= coalesce(case when k.id is null then null when v_oldest then v_max else v_max - k.pending end, 2147483647)
        as fits
    from job j left join part k on k.p = j.p where not j.replaces
  ),
  in_all as materialized (
    select i.*, i.fits and count(*) filter (where i.fits) over (order by case when v_oldest then -i.place else i.place end)
      <= coalesce(case when v_oldest then v_max_in_all else v_max_in_all - v_pending_in_all end, 2147483647) as kept
    from in_partition i
  ),
  tally as (
    select i.id, i.key, i.pending,
      count(*) filter (where not i.kept) as dropped, count(*) filter (where not i.fits) as over,
      case when v_oldest then greatest(i.pending + count(*) filter (where i.kept) - v_max, 0) else 0 end as excess
    from in_all i group by i.id, i.key, i.pending
  )
  select
    (select json_agg(j.value order by j.place) from job j
      where j.replaces or j.place in (select i.place from in_all i where i.kept)),
    (select jsonb_agg(to_jsonb(t)) from tally t where t.dropped > 0 or t.excess > 0),
    (select count(*) from in_all i where i.kept)
  into v_kept, v_full, v_fresh;
  v_excess := v_pending_in_all + v_fresh - v_max_in_all;
  if v_full is not null and (p_policy).when_full = 'reject' then
    raise exception using errcode = 'DPFUL', message = format(
      'dispatch_policy: the backlog of policy %L is full: %s', v_name, coalesce(
        (select format('partition %L has no room for %s of these jobs, %s of %s at most are pending',
            t.key, t.over, t.pending, v_max)
          from jsonb_to_recordset(v_full) t (key text, over int, pending int) where t.over > 0 order by t.key limit 1),
        format('no room for %s of these jobs, %s of %s at most are pending',
          (select sum(t.dropped) from jsonb_to_recordset(v_full) t (dropped int)), v_pending_in_all, v_max_in_all)));
  end if;
  for v_tally in select t.* from jsonb_to_recordset(v_full) t (id uuid, key text, dropped int, excess int) loop
    v_excess := v_excess - :DISPATCH_POLICY_SCHEMA._drop_oldest(v_name, v_tally.id, v_tally.excess, v_keys);
    if v_tally.dropped > 0 then
      insert into :DISPATCH_POLICY_SCHEMA._private_drops (policy, partition_id, key, reason, jobs)
      values (v_name, v_tally.id, v_tally.key, 'max_pending', v_tally.dropped);
    end if;
  end loop;
  if v_oldest and v_excess > 0 then
    perform :DISPATCH_POLICY_SCHEMA._drop_oldest(v_name, null, least(v_excess, v_fresh + 1000), v_keys);
  end if;
  if v_full is not null then
    perform :DISPATCH_POLICY_SCHEMA._notify(v_name);
  end if;
  if p_mode <> 'unsafe_dedupe' then   -- which of these are staged, _stage_deduped knows
    perform :DISPATCH_POLICY_SCHEMA._count_pending(v_name, v_fresh);
  end if;
  return coalesce(v_kept, '[]');
end
$$;
