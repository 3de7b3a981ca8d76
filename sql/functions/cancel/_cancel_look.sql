-- One look of a cancel at staging and at the jobs in flight. It locks staged rows, rows of Graphile Worker's and in-flight rows
-- in this order, and waits for them.
--
--   removed   how many staged jobs it removed
--   ended     jobs that were admitted and not fetched, which have failed for good
--   told      jobs that run, and were told to end; known: a cancel before has told them
--   missed    a job was on its way between the two places: look again
--   is_full   there may be more than `p_max` jobs of a kind
--   last_id   see _cancel_staged
create or replace function _cancel_look(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text, p_max int, p_after bigint,
  out removed int, out ended bigint[], out told bigint[], out known bigint[], out missed boolean, out is_full boolean,
  out last_id bigint
) language plpgsql volatile as $$
declare
  v_staged record;
  v_admitted record;
  v_marked record;
begin
  select s.* into v_staged
  from _cancel_staged(p_ids, p_policy, p_partition, p_by, p_reason, p_max, p_after) s;
  select a.* into v_admitted
  from _cancel_admitted(p_ids, p_policy, p_partition, p_by, p_reason, p_max) a;
  select m.* into v_marked from _mark_cancelled(
    p_ids, p_policy, p_partition, p_by, p_reason, v_admitted.ended, p_max) m;
  removed := v_staged.removed;
  ended := v_admitted.ended;
  told := v_marked.told;
  known := v_marked.known;
  missed := v_admitted.missed or v_marked.missed;
  last_id := v_staged.last_id;
  is_full := v_staged.is_full or v_admitted.is_full or v_marked.is_full;
end
$$;
