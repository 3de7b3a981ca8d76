-- Makes the producers of a strict backlog wait for each other until they commit. One row stands for the bound over all of
-- the policy, and one of 1,024 rows for each partition. Two partitions may share a row by chance. Then their producers
-- wait for each other as well.
create or replace function _lock_pending(
  p_policy policies, p_partitions json
) returns void language plpgsql as $$
begin
  perform from turns u
  where u.policy_id = (p_policy).id and u.step = 'pending' and u.place = any(array(
    select 0 where (p_policy).max_pending_in_all is not null
    union
    select 1 + (hashtext(k.key) & 1023) from json_to_recordset(p_partitions) k (key text)
    where (p_policy).max_pending is not null))
  order by u.place for update;
end
$$;
