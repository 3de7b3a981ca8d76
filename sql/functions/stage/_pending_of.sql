-- How many jobs of a partition are staged, counted up to `p_most`.
create or replace function _pending_of(p_partition_id uuid, p_most int)
returns int language plpgsql stable as $$
begin
  -- one index has the due jobs, another the others
  return least(p_most, (
    select count(*) from (
      select from staged_jobs s where s.partition_id = p_partition_id and s.due limit p_most) d
  ) + (
    select count(*) from (
      select from staged_jobs s where s.partition_id = p_partition_id and not s.due limit p_most) l
  ));
end
$$;
