-- The parameters `debounce_wait` and `debounce_max_wait`, checked, as a definition has them. Null: both are null.
create or replace function _debounce(p_wait interval, p_max_wait interval) returns json
language plpgsql as $$
begin
  if p_wait is null and p_max_wait is null then
    return null;
  elsif p_wait is null or p_max_wait is null then
    raise exception 'dispatch_policy: % is missing: expected debounce_wait and debounce_max_wait together, or neither. Without a longest wait, run_at and a job_key do the same',
      case when p_wait is null then 'debounce_wait' else 'debounce_max_wait' end using errcode = 'DPARG';
  elsif p_wait <= '0' or not isfinite(p_wait) then
    raise exception 'dispatch_policy: debounce_wait is %, expected an interval longer than 0', p_wait using errcode = 'DPARG';
  elsif p_max_wait < p_wait or not isfinite(p_max_wait) then
    raise exception 'dispatch_policy: debounce_max_wait is %, expected an interval of at least debounce_wait (%)',
      p_max_wait, p_wait using errcode = 'DPARG';
  elsif extract(epoch from p_max_wait) > 86400e6 then
    raise exception 'dispatch_policy: debounce_max_wait is %, expected at most a million days', p_max_wait
      using errcode = 'DPARG';
  end if;
  return json_build_object('waitSeconds', extract(epoch from p_wait), 'maxWaitSeconds', extract(epoch from p_max_wait));
end
$$;
