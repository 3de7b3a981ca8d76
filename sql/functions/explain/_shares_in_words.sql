-- How a cap comes from the shares of the worker pools, in brackets; empty: it does not.
create or replace function _shares_in_words(p_limit jsonb) returns text language sql immutable as $$
  select case when p_limit ? 'share' then ' (' || (p_limit ->> 'share') || ' per worker x ' || (p_limit ->> 'pools')
    || case when (p_limit ->> 'pools')::int = 1 then ' worker' else ' workers' end || ' = ' || n.jobs
    || case when (p_limit ->> 'max')::int < n.jobs then ', but one that was full has just requeued a job' else '' end || ')'
    else '' end
  from (select _shares_in_all((p_limit ->> 'share')::int, (p_limit ->> 'pools')::int) as jobs) n;
$$;
