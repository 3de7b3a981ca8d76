-- How a job ended and what it had waited for, in words: of its history, see _history_of.
create or replace function _ended_in_words(p_history jsonb) returns text language sql stable as $$
  select case p_history ->> 'outcome'
      when 'succeeded' then 'It succeeded' when 'failed' then 'It failed for good' when 'removed' then 'It was removed from staging'
      when 'dropped' then 'It was dropped' when 'replaced' then 'A newer job of its key replaced it'
      else 'It is gone, and nobody saw its end: this was found' end
    || ' at ' || (to_jsonb(date_trunc('second', (p_history ->> 'ended_at')::timestamptz)) #>> '{}')
    || coalesce(', after ' || (p_history ->> 'attempts') || case when p_history ->> 'attempts' = '1' then ' attempt'
      else ' attempts' end, '')
    || coalesce(': ' || (p_history ->> 'error'), '')
    || coalesce('. It waited ' || _waits_in_words(p_history -> 'waited'), '');
$$;
