-- Merges the arrivals of each partition whose arrivals had to be left. Otherwise, if a busy tenant's partition is locked
-- for an hour, each router would read the arrivals of that hour again. Routing the merged one has the same effect. Stops
-- and outcomes are not merged. Returns how many arrivals it saved.
create or replace function _merge_arrivals(p_policy text, p_ids bigint[]) returns int
language plpgsql as $$
declare
  v_consumed int;
begin
  with arrived as materialized (
    select a.* from arrivals a
    where a.policy = p_policy and a.id = any(p_ids) and a.pause is null and a.outcome is null
  ),
  newest as materialized (
    select distinct on (n.partition_id) n.partition_id, n.id from arrived n
    order by n.partition_id, (n.limits is not null) desc, n.version desc, n.id desc
  ),
  first as materialized (
    select distinct on (n.partition_id) n.partition_id, n.head_priority, n.head_run_at, n.head_id from arrived n
    order by n.partition_id, n.head_priority, n.head_run_at, n.head_id
  ),
  work as materialized (
    select n.partition_id, min(n.due_at) as due_at, min(n.min_cost) as min_cost, sum(n.jobs)::int as jobs,
      (array_agg(n.shard order by n.id) filter (where n.shard is not null))[1] as shard,
      -- a due job and a later one: the merged place is the due one's, and the later one may cost less
      bool_or(n.head_changed) or (bool_or(n.head_id = h.id) and bool_or(n.head_id < h.id)) as head_changed
    from arrived n cross join _no_head() h group by n.partition_id having count(*) > 1
  ),
  consumed as (
    delete from arrivals a
    where a.policy = p_policy and a.id = any(p_ids)
      and (a.id in (
        select n.id from arrived n join work w on w.partition_id = n.partition_id
        where n.id not in (select k.id from newest k))) is true
    returning 1
  ),
  kept as (
    update arrivals a set
      due_at = w.due_at, min_cost = w.min_cost, shard = w.shard, head_priority = f.head_priority,
      head_run_at = f.head_run_at, head_id = f.head_id, head_changed = w.head_changed, jobs = w.jobs
    from newest k join work w on w.partition_id = k.partition_id join first f on f.partition_id = k.partition_id
    where a.policy = p_policy and a.id = k.id and a.id = any(p_ids)
  )
  select count(*) into v_consumed from consumed;
  return v_consumed;
end
$$;
