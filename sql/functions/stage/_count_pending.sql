-- Changes the count of a policy's staged jobs, if the policy has a bound on all of them. Counting the jobs each time would
-- take as long as there are jobs.
create or replace function _count_pending(p_policy text, p_jobs int)
returns void language sql volatile as $$
  insert into pending (policy, jobs)
  select p.name, p_jobs from policies p
  where p.name = p_policy and p.max_pending_in_all is not null and p_jobs <> 0;
$$;
