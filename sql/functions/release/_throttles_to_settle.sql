-- The throttles whose tokens these ends settle, so that a release locks them with the others. _settle checks again which
-- they are, because the partition may have got others meanwhile.
create or replace function _throttles_to_settle(
  p_jobs finished_job[]
) returns bigint[] language plpgsql stable as $$   -- planned as _release
begin
  return array(
    select distinct l.id
    from unnest(p_jobs) j
    join in_flight_jobs f on f.job_id = j.job
    join partitions q on q.id = f.partition_id
    cross join lateral unnest(q.limiter_ids) u (id)
    join limiters l on l.id = u.id
    where j.settled is not null and l.by_tokens and _cost_at(j.settled, l.gate) is not null);
end
$$;
