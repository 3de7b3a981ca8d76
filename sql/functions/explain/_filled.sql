-- How many of a partition's jobs that were counted lately are still in flight: each with what is left of it in the count.
create or replace function _filled(p_partition_id uuid, p_half_life float8, p_now timestamptz)
returns float8 language plpgsql stable as $$
begin
  return coalesce((
    select sum(_decayed(1, f.admitted_at, p_half_life, p_now))
    from in_flight_jobs f where f.partition_id = p_partition_id), 0);
end
$$;
