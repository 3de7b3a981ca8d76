-- Replaces the many entries of a policy's pending count by one. The caller has the router's turn.
create or replace function _add_up_pending(p_policy text) returns void language sql volatile as $$
  with entry as (
    delete from pending d
    where d.policy = p_policy and (
      select count(*) from (
        select from pending x where x.policy = p_policy limit 10) x) = 10
    returning d.jobs
  )
  insert into pending (policy, jobs)
  select p_policy, sum(e.jobs) from entry e having count(*) > 0;
$$;
