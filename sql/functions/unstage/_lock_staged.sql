-- Locks and returns up to so many staged jobs, of one policy or of all (null). Those that were never quarantine come first,
-- because jobs that Graphile Worker refuses must not keep the others. Rows that another session has locked are skipped.
create or replace function _lock_staged(p_policy text, p_count int)
returns bigint[] language plpgsql volatile as $$
declare
  v_ids bigint[] := '{}';
  v_page bigint[];
  v_after bigint := 0;
begin
  -- another session may have a whole page locked: then the next one follows
  loop
    v_page := array(
      select s.id from _staged_of(p_policy) s where s.error is null and s.id > v_after
      order by s.id limit p_count - cardinality(v_ids));
    exit when v_page = '{}';
    v_after := v_page[cardinality(v_page)];
    v_ids := v_ids || _lock_available_staged(v_page);
  end loop;
  return v_ids || _lock_available_staged(array(
    select s.id from _staged_of(p_policy) s where s.error is not null
    order by s.failures, s.id limit p_count - cardinality(v_ids)));
end
$$;
