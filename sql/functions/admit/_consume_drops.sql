-- Consumes the records of dropped jobs: adds them to their partitions' counts, and returns them for the event.
create or replace function :DISPATCH_POLICY_SCHEMA._consume_drops(p_policy text)
returns table (partition text, reason text, jobs int) language plpgsql
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if not exists (select from :DISPATCH_POLICY_SCHEMA._private_drops d where d.policy = p_policy) then
    return;
  end if;
  return query
  with free as materialized (
    select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
    where q.id in (select d.partition_id from :DISPATCH_POLICY_SCHEMA._private_drops d where d.policy = p_policy)
    order by q.id for no key update skip locked
  ),
  consumed as materialized (
    delete from :DISPATCH_POLICY_SCHEMA._private_drops d
    where d.policy = p_policy and (d.partition_id in (select f.id from free f) or not exists (
      select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.id = d.partition_id))
    returning d.*
  ),
  counted as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions q set dropped_total = q.dropped_total + n.jobs
    from (select c.partition_id, sum(c.jobs) as jobs from consumed c group by c.partition_id) n
    where q.id = n.partition_id
  ),
  appended as (
    insert into :DISPATCH_POLICY_SCHEMA._private_activity (policy_id, at, dropped, expired)
    select p.id, clock_timestamp(), sum(c.jobs), sum(case c.reason when 'expired' then c.jobs else 0 end)
    from consumed c join :DISPATCH_POLICY_SCHEMA._private_policies p on p.name = c.policy group by p.id
  )
  select coalesce(q.key, c.key), c.reason, sum(c.jobs)::int
  from consumed c left join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = c.partition_id
  group by 1, 2 order by 1, 2;
end
$$;
