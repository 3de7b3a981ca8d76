-- Locks and returns up to so many staged jobs, of one policy or of all (null). Those that were never set aside come first,
-- because jobs that Graphile Worker refuses must not keep the others. Rows that another session has locked are skipped.
create or replace function :DISPATCH_POLICY_SCHEMA._lock_staged(p_policy text, p_count int)
returns bigint[] language plpgsql volatile as $$
declare
  v_ids bigint[] := array(
    select s.id from :DISPATCH_POLICY_SCHEMA._staged_of(p_policy) s where s.error is null
    order by s.id limit p_count);
begin
  if cardinality(v_ids) < p_count then
    v_ids := v_ids || array(
      select s.id from :DISPATCH_POLICY_SCHEMA._staged_of(p_policy) s where s.error is not null
      order by s.failures, s.id limit p_count - cardinality(v_ids));
  end if;
  return array(
    select s.id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.id = any(v_ids) order by s.id for update skip locked);
end
$$;
