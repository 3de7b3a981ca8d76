-- For the list of partitions, and nothing else calls it: what it shows beside the view.

-- How many partitions have staged jobs, by what they wait for: the metric waiting_partitions, which takes a fraction of all metrics.
-- Where partitions may have lanes, which the metric counts, they are counted in the view.
--
--   policy   null: all policies
--   reason   `not_due`: their jobs come later; `none`: they are in line
--
--   select * from dispatch_policy.partitions_by_reason('fetch_endpoint');
create or replace function :DISPATCH_POLICY_SCHEMA.partitions_by_reason(policy text default null)
returns table (reason text, partitions bigint) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set jit = off as $$
declare
  v_policy_id int := (select p.id from policies p where p.name = partitions_by_reason.policy);
  v_laned text[] := array(
    select p.name from policies p where p.keyed_scopes and (partitions_by_reason.policy is null or p.id = v_policy_id));
begin
  return query
  select c.reason, sum(c.partitions)::bigint from (
    select w.reason, w.partitions from _waiting_partitions(v_policy_id) w
    where w.policy <> all (v_laned) and (partitions_by_reason.policy is null or v_policy_id is not null)
    union all
    select coalesce(v.reason, case when v.next_due_at > statement_timestamp() then 'not_due' else 'none' end), 1
    from :DISPATCH_POLICY_SCHEMA.partitions v where v.policy = any(v_laned) and v.staged > 0
  ) c group by c.reason;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.partitions_by_reason from public;

-- How full the narrowest cap of each of these partitions is, overrides applied. One without a cap has no row.
--
--   id          of the partition, as in the view partitions
--   gate        the name of the gate; `is_own`: it counts over the partition alone
--   in_flight, max   how many jobs occupy it, and how many may
create or replace function :DISPATCH_POLICY_SCHEMA.partition_caps(partition_ids uuid[])
returns table (id uuid, gate text, is_own boolean, in_flight int, max int) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set jit = off as $$
#variable_conflict use_column
begin
  return query
  with its as materialized (
    select q.id, q.policy_id, l.limiter_id, l.n
    from partitions q cross join unnest(q.limiter_ids) with ordinality l (limiter_id, n)
    where q.id = any(partition_caps.partition_ids)
  ),
  cap as materialized (
    select r.id, r.gate, l.breadth, r.in_flight, r.cap
    from (select i.policy_id, array_agg(distinct i.limiter_id) as limiter_ids from its i group by i.policy_id) p
    cross join lateral _rooms_of(p.limiter_ids, statement_timestamp(), false) r
    join limiters l on l.id = r.id   -- the breadth of one that counts over lanes is another in r
    where r.cap is not null and r.kind <> 'ahead' and r.shadow_slots is null
  )
  select distinct on (i.id) i.id, c.gate, c.breadth = 0, c.in_flight, c.cap
  from its i join cap c on c.id = i.limiter_id order by i.id, i.n;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.partition_caps from public;

-- Of a policy the partitions that wait for something and have the most staged jobs, and those that were admitted most. It reads
-- each partition once: without an index for it, that is what a page of a policy takes longest for.
--
--   waiting, admitted   at most so many of each
--   id                  of the partition, as in the view partitions
--   waits, admitted_most   whether it is one of the first, and one of the others
create or replace function :DISPATCH_POLICY_SCHEMA.top_partitions(policy text, waiting int, admitted int)
returns table (id uuid, waits boolean, admitted_most boolean) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set jit = off as $$
#variable_conflict use_column
declare
  v_policy policies := _policy(top_partitions.policy);
begin
  return query
  with its as materialized (
    select x.* from (
      select q.id, q.staged, q.admitted_total, q.staged > 0 and _shown_reason(
        v_policy.paused_until, q.paused_until, q.held_until, q.breaker_until, q.denied_reason) is not null as waits
      from partitions q where q.policy_id = v_policy.id and not v_policy.keyed_scopes
      union all
      -- lanes of one key are one partition
      select v.id, v.staged, v.admitted_total, v.staged > 0 and v.reason is not null
      from :DISPATCH_POLICY_SCHEMA.partitions v where v.policy = v_policy.name and v_policy.keyed_scopes
    ) x where x.waits or x.admitted_total > 0
  )
  select t.id, bool_or(t.waits), bool_or(not t.waits)
  from (
    (select i.id, true as waits from its i where i.waits order by i.staged desc, i.id limit top_partitions.waiting)
    union all
    (select i.id, false from its i where i.admitted_total > 0 order by i.admitted_total desc, i.id limit top_partitions.admitted)
  ) t group by t.id;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.top_partitions from public;
