-- _stage_batch in mode unsafe_dedupe: if a key already has a job, the new job is not staged, and that one is returned.
-- Another session may add a job of the key after the look and before the insert. So what the insert finds is looked up
-- again.
create or replace function _stage_deduped(
  p_policy text, p_version int, p_partitions json, p_jobs json
) returns setof staging language plpgsql as $$
#variable_conflict use_column
declare
  v_left json := p_jobs;
  v_rows staging[];
begin
  for v_try in 1..20 loop
    v_rows := array(select s from _known_jobs(p_policy, p_partitions, v_left) s);
    return query select s.* from unnest(v_rows) s;
    v_left := _jobs_without(v_left, v_rows);
    exit when v_left is null;
    v_rows := array(select s from _stage_batch(
      p_policy, p_version, p_partitions, v_left, 'unsafe_dedupe') s);
    return query select s.* from unnest(v_rows) s;
    perform _count_pending(p_policy, cardinality(v_rows));
    v_left := _jobs_without(v_left, v_rows);
    exit when v_left is null;
  end loop;
  if v_left is not null then
    raise exception 'dispatch_policy: job_key_mode is unsafe_dedupe, expected keys at rest: in each of 20 tries other sessions added and removed jobs of the same keys. None of the jobs was added: try again'
      using errcode = 'serialization_failure';
  end if;
end
$$;
