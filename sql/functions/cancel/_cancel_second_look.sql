-- A look of a cancel after the first one of its transaction.
--
-- The danger: the first look has locked in-flight rows, and staged rows come before these in the lock order. If a pass has
-- locked a staged row and waits for one of those in-flight rows, the two deadlock. The cure: it waits for a moment. If it does
-- not get a row, it undoes itself, and `missed` says that the caller has to look again in another transaction.
create or replace function _cancel_second_look(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text, p_max int, p_after bigint,
  out removed int, out ended bigint[], out told bigint[], out known bigint[], out missed boolean, out is_full boolean,
  out last_id bigint
) language plpgsql volatile
set lock_timeout = '5ms' as $$
begin
  select c.* into removed, ended, told, known, missed, is_full, last_id
  from _cancel_look(p_ids, p_policy, p_partition, p_by, p_reason, p_max, p_after) c;
exception when lock_not_available then
  removed := 0;
  ended := '{}';
  told := '{}';
  known := '{}';
  missed := true;
  is_full := false;
end
$$;
