-- Whether a worker pool runs the tick loop of this shard. A lease that runs for longer than any lease does is void, see _lease.
create or replace function _is_led(p_policy text, p_shard text, p_now timestamptz) returns boolean
language plpgsql stable as $$
begin
  return exists (
    select from leases l
    where l.policy = p_policy and l.shard = p_shard and l.expires_at > p_now and l.expires_at <= p_now + interval '30 seconds');
end
$$;
