-- All limiters of these partitions. It is in PL/pgSQL, so that a session plans it once and not at each call.
create or replace function _limiters_of(p_partition_ids uuid[]) returns bigint[]
language plpgsql stable as $$
begin
  return array(
    select distinct u.id from partitions p cross join unnest(p.limiter_ids) u (id)
    where p.id = any(p_partition_ids));
end
$$;
