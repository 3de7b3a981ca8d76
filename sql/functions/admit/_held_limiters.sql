-- Which of these limiters another transaction has locked at this moment. It keeps no lock itself: the caller goes on to
-- take others, in order.
create or replace function :DISPATCH_POLICY_SCHEMA._held_limiters(p_ids bigint[]) returns bigint[] language plpgsql as $$
declare
  v_held_ids bigint[];
begin
  begin
    v_held_ids := :DISPATCH_POLICY_SCHEMA._lock_available_limiters(p_ids);
    raise exception using errcode = 'DPOUT';   -- which lets go of the others
  exception when sqlstate 'DPOUT' then null;
  end;
  return v_held_ids;
end
$$;
