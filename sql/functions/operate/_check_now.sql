-- Refuses a `now` unless the caller owns the schema, because a time ahead fills buckets. Functions that have the owner's
-- rights call it. There, current_user is the owner. The caller is the role that was set, or else the session's user.
create or replace function _check_now(p_verb text, p_now timestamptz)
returns void language plpgsql stable as $$
begin
  if p_now is not null and not pg_has_role(
    coalesce(nullif(current_setting('role'), 'none')::name, session_user), current_user, 'usage')
  then
    raise exception 'dispatch_policy: %: now is %, expected null: only the owner of the schema may give another time than the database clock''s',
      p_verb, p_now using errcode = 'DPARG';
  end if;
end
$$;
