-- Puts the copy of a parked job that somebody retried by hand in the place of its staged row. A copy that is quarantined gets no
-- place before others: in strict order they would wait for it until an operator acts.
--
-- A producer may have the key locked in an open transaction. It adds a newer job of the key, so nobody waits for it.
create or replace function _replace_parked(p_job_id bigint, p_copy_id bigint, p_quarantined boolean)
returns void language plpgsql volatile as $$
declare
  v_parked record;
begin
  select s.id, s.sort_at into v_parked from staged_jobs s
  where s.id = _parked_row_of(p_job_id) for update skip locked;
  if not found then
    return;
  end if;
  update staged_jobs s set sort_at = v_parked.sort_at
  where s.id = p_copy_id and v_parked.sort_at is not null and not p_quarantined;
  update unique_keys k set staged_id = p_copy_id
  where k.ctid = any(array(
    select x.ctid from unique_keys x
    where x.staged_id = v_parked.id for update skip locked));
  perform _drop_staged(array[v_parked.id]);
end
$$;
