-- Whether drops wait for somebody who counts them and tells of them, or partitions with mixed keys. Volatile, so that it sees
-- those of the pass before it in the same statement.
create or replace function _is_to_tell(p_policy text) returns boolean language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  return exists (select from drops d where d.policy = p_policy) or exists (
    select from policies p
    join partitions q
      on q.policy_id = p.id and not q.mixed_told and q.mixed_told is not null
    where p.name = p_policy and p.keyed_scopes);
end
$$;
