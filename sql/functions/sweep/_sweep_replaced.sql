-- Fails a parked job for good if a newer job of its key has replaced it, and that one left staging without being
-- admitted. For example, a full backlog dropped it. Nothing else would ever run or end the parked one. If another session
-- has its row locked, it waits for another sweep. Returns how many failed for good.
--
-- An application that adds a job of such a key waits until this commits. So it is 200 jobs at most, drawn by lot, and 20
-- waits for locks of 5 ms.
create or replace function _sweep_replaced() returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5ms'
as $$
declare
  v_key text;
  v_jobs int := 0;
  v_waits int := 0;
begin
  delete from replaced_jobs r
  where r.job_id = any(array(
    select x.job_id from replaced_jobs x
    where not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j
      where j.id = x.job_id and j.run_at = 'infinity' and j.attempts < j.max_attempts)
    for update skip locked));
  for v_key in
    select c.key from (
      select j.key from replaced_jobs r
      cross join lateral (
        select x.key from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = r.job_id and x.key is not null limit 1) j
      where not exists (select from staged_jobs s where s.job_key = j.key)
      order by random() limit 200
    ) c
  loop
    begin
      v_jobs := v_jobs + _give_up_replaced(array[v_key]);
    exception when lock_not_available then
      v_waits := v_waits + 1;
    end;
    exit when v_waits >= 20;
  end loop;
  return v_jobs;
end
$$;
