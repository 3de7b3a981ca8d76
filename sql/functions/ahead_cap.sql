-- How many jobs of a policy may be in flight so that workers never wait for a tick: their slots + ahead. By default
-- ahead follows what the workers finish in a second: with instant jobs a fixed 110 held the pace to a fifth. What has
-- finished of the second that is being measured counts too, up to 250, so that workers that start need not wait for it.
-- Null: no bound.
create or replace function :DISPATCH_POLICY_SCHEMA._ahead_cap(limiter :DISPATCH_POLICY_SCHEMA._private_limiters)
returns int language sql stable as $$
  select case
    when p.ahead_auto then s.slots + greatest(
      2 * s.slots, 100, least(ceil(limiter.finished_per_second), 1e6)::int,
      least(limiter.released - limiter.sampled_released, 250)::int)
    else s.slots + p.ahead
  end
  from :DISPATCH_POLICY_SCHEMA._private_policies p
  cross join lateral (
    select coalesce(sum(w.slots), 0)::int as slots
    from :DISPATCH_POLICY_SCHEMA._private_workers w
    where w.stale_at > clock_timestamp()
      and w.tasks && array(select t.task_identifier from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t
                           where t.policy_id = p.id)
  ) s
  where p.id = limiter.policy_id;
$$;

-- Whether the workers have enough to do while releases rest (a quarter of a second) and a pass makes up for them.
create or replace function :DISPATCH_POLICY_SCHEMA._is_enough(p_in_flight int, p_finished_per_second float8)
returns boolean language sql immutable as $$
  select p_finished_per_second > 0 and p_in_flight >= p_finished_per_second * 0.3;
$$;

-- Whether somebody waits for the ahead bound though there is room. The bound rises without a release: a worker pool
-- comes, or jobs finish faster. So it is looked at, not announced: a note would have to be left under the limiter's
-- lock, and a heartbeat waits for nobody.
create or replace function :DISPATCH_POLICY_SCHEMA._waits_in_vain(p_policy_id int, p_limiter_id bigint)
returns boolean language sql stable as $$
  select exists (
    select from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = p_limiter_id
      and exists (select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = l.id)
      and (:DISPATCH_POLICY_SCHEMA._ahead_cap(l)
        > l.in_flight + cardinality(:DISPATCH_POLICY_SCHEMA._still_ending(l.ending))) is not false);
$$;

-- Which of these jobs, released as they ended, Graphile Worker still has as they were then. One that runs again counts as
-- in flight.
create or replace function :DISPATCH_POLICY_SCHEMA._still_ending(p_job_ids bigint[]) returns bigint[]
language plpgsql stable as $$
begin
  if p_job_ids = '{}' then
    return p_job_ids;
  end if;
  return array(
    select u.id from unnest(p_job_ids) u (id)
    cross join lateral (   -- one look at the index for each job
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = u.id and j.locked_at is not null limit 1) j
    where not exists (
      select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = u.id));
end
$$;
