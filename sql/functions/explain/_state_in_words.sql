-- What an explanation says of a job that does not wait, in words. Null: it waits.
create or replace function _state_in_words(p_it jsonb, p_now timestamptz)
returns text language plpgsql stable as $$
begin
  return case p_it ->> 'state'
    when 'unknown' then case
      when p_it ->> 'id' is null and p_it ->> 'partition' is not null then
        'Nothing is known of this partition: no job has had this key lately, or the key is misspelt'
      else 'Nothing is known of it: it has finished, was removed, or was never added' end
    when 'idle' then 'No job of the partition waits'
    when 'failed' then 'It has failed for good, after ' || (p_it ->> 'attempts')
      || case p_it ->> 'attempts' when '1' then ' attempt: ' else ' attempts: ' end || coalesce(p_it ->> 'error', 'no error was recorded')
    when 'running' then 'It has run for ' || _in_words(
      extract(epoch from p_now - (p_it ->> 'started_at')::timestamptz)::float8)
    when 'admitted' then 'It was admitted, and a worker fetches it next'
    when 'ended' then _ended_in_words(p_it -> 'history')
    when 'plain' then 'It is a job of Graphile Worker that no policy holds back'
  end;
end
$$;
