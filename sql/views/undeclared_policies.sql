-- Policies that nobody declared, and for which jobs wait. A process that has the policy added them before any process
-- declared it, or after it was removed.
create or replace view :DISPATCH_POLICY_SCHEMA.undeclared_policies as
with recursive arrived (name) as (   -- one look at the index for each name
  select min(a.policy) from arrivals a
  union all
  select (select min(a.policy) from arrivals a where a.policy > x.name)
  from arrived x where x.name is not null
),
keyless (name) as (
  select min(k.policy) from keyless_jobs k
  union all
  select (select min(k.policy) from keyless_jobs k where k.policy > x.name)
  from keyless x where x.name is not null
),
undeclared as (
  select x.name from (select a.name from arrived a union select k.name from keyless k) x
  where x.name is not null
    and not exists (select from policies p where p.name = x.name)
)
select u.name as policy, w.staged
from undeclared u
cross join lateral (
  select ((select coalesce(sum(a.jobs), 0) from arrivals a where a.policy = u.name)
    + (select count(*) from keyless_jobs k
      join staged_jobs s on s.id = k.staged_id and s.partition_id is null
      where k.policy = u.name))::int as staged
) w
where w.staged > 0;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column undeclared_policies.policy is 'Name of the policy, as its jobs have it.';
comment on column undeclared_policies.staged is 'Jobs that wait in staging.';
