-- The next staged jobs of a partition, each as `explain` has it: why it waits, and when it starts. They come in the order in
-- which passes take them. Those that are not due come last, by their times.
--
--   count   at most so many, 1 to 50: to explain one takes some milliseconds
--
--   select it ->> 'id', it ->> 'sentence' from dispatch_policy.explain_next('fetch_endpoint', 'ep1') it;
create or replace function :DISPATCH_POLICY_SCHEMA.explain_next(policy text, partition text, count int default 5)
returns setof jsonb language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
  v_partition_id uuid;
  v_head_id bigint;
  v_ids bigint[];
begin
  if explain_next.count is null or explain_next.count not between 1 and 50 then
    raise exception 'dispatch_policy: explain_next: count is %, expected 1 to 50',
      coalesce(explain_next.count::text, 'null') using errcode = 'DPARG';
  end if;
  v_partition_id := _partition_id(
    (_policy(explain_next.policy)).name, explain_next.partition);
  v_head_id := _head_of(v_partition_id);
  -- each part in the order of an index: a partition may have a million jobs
  v_ids := array(
    select n.id from (
      select v_head_id as id, 0 as stage, 0 as priority, '-infinity'::timestamptz as run_at where v_head_id is not null
      union all
      (select d.id, 1, d.priority::int, d.run_at
        from _next_in_order(v_partition_id, explain_next.count) d
        where d.id is distinct from v_head_id)
      union all
      (select s.id, 2, 0, coalesce(s.retry_at, s.run_at) from staged_jobs s
        where s.partition_id = v_partition_id and not s.due
          and s.id is distinct from v_head_id
        order by coalesce(s.retry_at, s.run_at) limit explain_next.count)
    ) n order by n.stage, n.priority, n.run_at, n.id limit explain_next.count);
  return query
  select :DISPATCH_POLICY_SCHEMA.explain(id => u.id) from unnest(v_ids) with ordinality u (id, ord) order by u.ord;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.explain_next from public;
