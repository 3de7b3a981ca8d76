-- Whether somebody waits for the ahead bound although there is room. The bound rises without a release, because a worker
-- pool comes, or because jobs finish faster. So it is checked instead of announced: a freed row would have to be written
-- under the limiter's lock, and a heartbeat waits for nobody.
create or replace function :DISPATCH_POLICY_SCHEMA._waits_in_vain(
  p_policy_id int, p_limiter_id bigint, p_now timestamptz
) returns boolean language plpgsql stable as $$
begin
  return exists (
    select from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = p_limiter_id
      and exists (select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = l.id)
      and (:DISPATCH_POLICY_SCHEMA._ahead_cap(l, p_now)
        > l.in_flight + cardinality(:DISPATCH_POLICY_SCHEMA._still_ending(l.ending))) is not false);
end
$$;
