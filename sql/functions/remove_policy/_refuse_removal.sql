-- Raises if a worker pool with this policy lives, if jobs of it are in flight, or if jobs wait that go nowhere. Pools would
-- declare it again. Jobs in flight would not count any more, and another policy would let as many go beside them.
create or replace function _refuse_removal(p_policy text, p_waiting int) returns void
language plpgsql volatile as $$
declare
  v_in_flight int := (
    select count(*) from in_flight_jobs f
    join policies p on p.id = f.policy_id where p.name = p_policy);
begin
  perform _refuse_live_workers('remove_policy', p_policy);
  if v_in_flight > 0 then
    raise exception 'dispatch_policy: remove_policy: % jobs of policy % are in flight, expected none: call it again when they have ended',
      v_in_flight, quote_literal(p_policy) using errcode = 'DPUSE';
  elsif p_waiting > 0 then
    raise exception 'dispatch_policy: remove_policy: % jobs wait for policy %, expected none without "into". Name the policy that they move to. Or % first',
      p_waiting, quote_literal(p_policy),
      case when exists (
          select from policies p where p.name = p_policy and p.enabled)
        then 'switch the policy off and call unstage' else 'call unstage' end using errcode = 'DPUSE';
  end if;
end
$$;
