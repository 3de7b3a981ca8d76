-- Drops the staged rows of parked jobs whose rows in Graphile Worker these admitted jobs of their keys got.
--
-- The danger: the next retry in such a row would be staged under the older job's id. Then that one's group and history, and
-- `uniqueFor`, would get its end. The cure: the older job leaves staging as replaced, wherever it waits. A row that another
-- session has locked stays: it leaves at its own time.
create or replace function _drop_outlived(p_admissions admission[])
returns void language plpgsql as $$
declare
  v_ids bigint[] := array(
    select s.id from staged_jobs s
    where s.parked_job_id = any(array(select a.job_id from unnest(p_admissions) a where a.admitted and a.revision > 0))
    order by s.id for update skip locked);
begin
  perform _drop_staged(v_ids) where v_ids <> '{}';
end
$$;
