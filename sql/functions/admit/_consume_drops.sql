-- Consumes the records of dropped jobs: adds them to their partitions' counts, and returns them for the event.
create or replace function _consume_drops(p_policy text)
returns table (partition text, reason text, jobs int) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
begin
  if not exists (select from drops d where d.policy = p_policy) then
    return;
  end if;
  return query
  with free as materialized (
    select q.id from partitions q
    where q.id in (select d.partition_id from drops d where d.policy = p_policy)
    order by q.id for no key update skip locked
  ),
  consumed as materialized (
    delete from drops d
    where d.policy = p_policy and (d.partition_id in (select f.id from free f) or not exists (
      select from partitions q where q.id = d.partition_id))
    returning d.*
  ),
  counted as (
    update partitions q set dropped_total = q.dropped_total + n.jobs
    from (select c.partition_id, sum(c.jobs) as jobs from consumed c group by c.partition_id) n
    where q.id = n.partition_id
  ),
  appended as (
    insert into activity (policy_id, at, dropped, expired)
    select p.id, clock_timestamp(), sum(c.jobs), sum(case c.reason when 'expired' then c.jobs else 0 end)
    from consumed c join policies p on p.name = c.policy group by p.id
  )
  select coalesce(q.key, c.key), c.reason, sum(c.jobs)::int
  from consumed c left join partitions q on q.id = c.partition_id
  group by 1, 2 order by 1, 2;
end
$$;
