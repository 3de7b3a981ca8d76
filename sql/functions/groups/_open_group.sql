-- Makes a job group of jobs that were just added, and returns its id. If none of them is left to wait for, it adds the
-- callback at once, and returns null. If that cannot be added now, the group stays open.
--
-- A job that was not added counts as dropped, also if the row has the id of the job that kept it out (`uniqueFor`). So does one
-- whose job the call has already.
create or replace function _open_group(
  p_rows staging[], p_then json
) returns bigint language plpgsql volatile as $$
declare
  v_group groups;
  v_added staging[] := array(
    select r from unnest(p_rows) r where r.id is not null and (not r.staged or r.job is null));
  v_jobs int := (select count(distinct r.id) from unnest(v_added) r);
begin
  insert into groups (callback, total, dropped)
  values (p_then, cardinality(p_rows), cardinality(p_rows) - v_jobs) returning * into v_group;
  if v_jobs = 0 then
    -- a callback that has no room, or whose key is remembered, must not fail the call: a sweep tries again
    begin
      perform _end_group(v_group);
      return null;
    exception when sqlstate 'DPFUL' then
      update groups g set error = sqlerrm where g.id = v_group.id;
      return v_group.id;
    end;
  end if;
  insert into group_jobs (staged_id, group_id, job_id)
  select r.id, v_group.id, case when bool_and(r.staged) then null else r.id end
  from unnest(v_added) r group by r.id;
  return v_group.id;
end
$$;
