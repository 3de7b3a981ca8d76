-- Those of these limiters that another transaction has locked at this moment. It keeps no lock itself, because the caller
-- goes on to lock others in order.
create or replace function _locked_limiters(p_ids bigint[]) returns bigint[] language plpgsql as $$
declare
  v_locked_ids bigint[];
begin
  begin
    v_locked_ids := _lock_available_limiters(p_ids);
    raise exception using errcode = 'DPOUT';   -- which unlocks the others
  exception when sqlstate 'DPOUT' then null;
  end;
  return v_locked_ids;
end
$$;
