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
