-- Raises if the caller has another definition of the policy than the one in force. It would work out other limits.
create or replace function _refuse_definition(
  p_policy policies, p_hash text
) returns void language plpgsql as $$
begin
  if (p_policy).definition_hash <> p_hash then
    raise exception 'dispatch_policy: refresh_context: this process has another definition of policy % than the one in force. Call it in a process that has that one',
      quote_literal((p_policy).name) using errcode = 'DPARG';
  end if;
end
$$;
