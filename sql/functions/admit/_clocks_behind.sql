-- How far the clocks of the worker pools are behind, at most. Under useNodeTime, such a worker does not see a job before its
-- clock says now.
create or replace function _clocks_behind() returns interval language plpgsql stable as $$
begin
  return (
    select greatest(max(w.clock_behind), '0') from workers w
    where w.stale_at > clock_timestamp());
end
$$;
