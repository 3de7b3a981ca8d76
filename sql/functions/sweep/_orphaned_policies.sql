-- The policies for which jobs wait, and which no live worker pool has, with the number of those jobs, up to 10,000. They may
-- have been renamed or removed in the code. A name that nobody declared is one of them: a process that still knows the
-- policy may have added jobs.
--
-- A host that is no worker pool may tick it (wrapTaskList). Then some job of it has ended in the last five minutes.
create or replace function _orphaned_policies()
returns table (policy text, jobs int, declared boolean) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with named as (
    select p.name, true as declared from policies p
    union all
    select u.policy, false from :DISPATCH_POLICY_SCHEMA.undeclared_policies u
  ),
  alone as materialized (
    select n.name, n.declared from named n
    where not exists (
        select from workers w
        where w.stale_at > clock_timestamp() and not w.ended and w.definitions ? n.name)
      and not exists (
        select from policies p
        join limiters l on l.id = p.ahead_limiter_id
        where p.name = n.name and l.sampled_at > clock_timestamp() - interval '5 minutes')
  )
  select n.name, w.jobs, n.declared
  from alone n
  cross join lateral (
    select count(*)::int as jobs from (
      select from _staged_of(n.name) s limit 10000) x) w
  where w.jobs > 0;
$$;
