-- Deletes those of these freed rows whose limiters are served. Each unsure limiter has one afterwards: it got room without a
-- release, and those that were woken may not use it. Or it may get some when a worker pool comes.
create or replace function _keep_freed(
  p_policy_id int, p_freed bigint[], p_served bigint[], p_unsure bigint[]
) returns void language plpgsql volatile as $$   -- planned as _route
begin
  delete from freed f
  where f.policy_id = p_policy_id and f.id = any(p_freed) and (f.limiter_id in (select unnest(p_served))) is true;
  if p_unsure <> '{}' then
    insert into freed (policy_id, limiter_id)
    select p_policy_id, u.id from unnest(p_unsure) u (id)
    where not exists (
      select from freed f where f.policy_id = p_policy_id and f.limiter_id = u.id);
  end if;
end
$$;
