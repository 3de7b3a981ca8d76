-- The policies for which jobs wait, and which no live worker pool has, with the number of those jobs, up to 10,000. They may
-- have been renamed or removed in the code. A name that nobody declared is one of them: a process that still knows the
-- policy may have added jobs.
--
-- A host that is no worker pool may tick it (wrapTaskList). Then some job of it has ended in the last five minutes.
create or replace function :DISPATCH_POLICY_SCHEMA._orphaned_policies()
returns table (policy text, jobs int) language sql stable
set search_path = pg_catalog, pg_temp as $$
  with recursive arrived (name) as (   -- one look at the index for each name
    select min(a.policy) from :DISPATCH_POLICY_SCHEMA._private_arrivals a
    union all
    select (select min(a.policy) from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.policy > x.name)
    from arrived x where x.name is not null
  ),
  named as (
    select p.name from :DISPATCH_POLICY_SCHEMA._private_policies p
    union
    select x.name from arrived x where x.name is not null
  ),
  alone as materialized (
    select n.name from named n
    where not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_workers w
        where w.stale_at > clock_timestamp() and not w.ended and w.definitions ? n.name)
      and not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_policies p
        join :DISPATCH_POLICY_SCHEMA._private_limiters l on l.id = p.ahead_limiter_id
        where p.name = n.name and l.sampled_at > clock_timestamp() - interval '5 minutes')
  )
  select n.name, w.jobs
  from alone n
  cross join lateral (
    select count(*)::int as jobs from (
      select from :DISPATCH_POLICY_SCHEMA._staged_of(n.name) s limit 10000) x) w
  where w.jobs > 0;
$$;
