-- What a limit of a key, of a context, or of all keys concerns: the partitions that go by it, and their jobs. It is for dry
-- runs, so it locks nothing. It reads all partitions of the policy.
create or replace function _limit_reach(
  p_policy policies, p_gate text, p_key text, p_where jsonb,
  out partitions int, out staged int, out in_flight int
) language plpgsql stable as $$
declare
  v_limiter_id bigint := (
    select l.id from limiters l
    where l.policy_id = (p_policy).id and l.gate = p_gate and l.scope_key = p_key);
begin
  select r.partitions, r.staged, r.in_flight into partitions, staged, in_flight
  from _reach((p_policy).name, case when p_key is not null or p_where is not null then array(
    select q.id from partitions q
    where q.policy_id = (p_policy).id and (
      v_limiter_id = any(q.limiter_ids) or (q.arrival_id > 0 and q.context @> p_where))) end) r;
end
$$;
