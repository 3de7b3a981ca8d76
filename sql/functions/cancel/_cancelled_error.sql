-- The last error of a job that was cancelled: by whom and why, with the error that it had before in parentheses.
create or replace function _cancelled_error(p_by text, p_reason text, p_last_error text) returns text
language sql immutable as $$
  select case when strpos(p_last_error, e.text) > 0 then p_last_error
    else e.text || coalesce(' (' || p_last_error || ')', '') end
  from (select 'cancelled by ' || p_by || coalesce(': ' || p_reason, '') as text) e;
$$;
