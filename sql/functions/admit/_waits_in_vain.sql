-- Whether somebody waits for the ahead bound although there is room. The bound rises without a release, because a worker
-- pool comes, or because jobs finish faster. So it is checked instead of announced: a freed row would have to be written
-- under the limiter's lock, and a heartbeat waits for nobody.
create or replace function _waits_in_vain(
  p_policy_id int, p_limiter_id bigint, p_now timestamptz
) returns boolean language plpgsql stable as $$
begin
  return exists (
    select from limiters l
    where l.id = p_limiter_id
      and exists (select from partitions q where q.blocked_on = l.id)
      and (_ahead_cap(l, p_now)
        > l.in_flight + cardinality(_still_ending(l.ending))) is not false);
end
$$;
