-- Ends a step of a removal, which is tried again.
create or replace function _raise_in_use(p_policy text) returns void language plpgsql as $$
begin
  raise exception 'dispatch_policy: remove_policy: a job of policy % was added or admitted meanwhile', quote_literal(p_policy)
    using errcode = 'lock_not_available';
end
$$;
