-- Raises unless each statement of the transaction sees what others have committed by then.
create or replace function _check_isolation(p_step text) returns void language plpgsql stable as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'dispatch_policy: %: transaction_isolation is %, expected read committed. Call it in a transaction that was begun with "isolation level read committed"',
      p_step, current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state',
        hint = 'Under a fixed snapshot it would decide by counters that others have since changed.';
  end if;
end
$$;
