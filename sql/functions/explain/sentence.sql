-- The same in words.

-- An explanation in words, for somebody who does not know this package. See `explain` for its parts.
create or replace function _sentence(p_it jsonb, p_now timestamptz)
returns text language plpgsql stable as $$
declare
  v_gate jsonb := (select g from jsonb_array_elements(p_it -> 'gates') g where g ->> 'gate' = p_it ->> 'gate');
  v_oldest jsonb := v_gate -> 'holders' -> 0;
  v_of text := 'gate "' || (p_it ->> 'gate') || '"' || coalesce(' of ' || (v_gate ->> 'key'), '');
  v_until text := coalesce(' until ' || _to_the_second(p_it #>> '{stop,until}'), '');
  v_because text := coalesce(' by ' || (p_it #>> '{stop,by}'), '') || coalesce(' (' || (p_it #>> '{stop,reason}') || ')', '');
  v_besides text := case p_it #>> '{stop,besides,kind}'
    when 'breaker' then '. Its breaker is open besides'
    when 'hold' then '. It is on hold besides' || coalesce(' by ' || (p_it #>> '{stop,besides,by}'), '') end
    || coalesce(' (' || (p_it #>> '{stop,besides,reason}') || ')', '')
    || ', until ' || _to_the_second(p_it #>> '{stop,besides,until}');
  v_cancelled text := coalesce(p_it #>> '{cancelled,by}', 'Somebody') || ' cancelled it '
    || _in_words(extract(epoch from p_now - (p_it #>> '{cancelled,at}')::timestamptz)::float8) || ' ago'
    || coalesce(' (' || (p_it #>> '{cancelled,reason}') || ')', '');
  v_why text;
  v_more text := '';
begin
  v_why := _state_in_words(p_it, p_now);
  if v_why is not null then
    return v_why || '.' || coalesce(' ' || v_cancelled || case p_it ->> 'state'
      when 'running' then '. Its run was told to end.'
      when 'admitted' then '. The worker that fetches it ends it without running it.' end, '');
  end if;
  v_why := case when p_it ->> 'reason' in ('rate_zero', 'max_zero') and v_gate #>> '{set_by,hold}' = 'true'
    then 'G' || substr(v_of, 2) || ' is on hold' || coalesce(' by ' || (v_gate #>> '{set_by,by}'), '')
      || coalesce(' (' || (v_gate #>> '{set_by,reason}') || ')', '') || ' until '
        || _to_the_second(v_gate #>> '{set_by,until}')
    else case p_it ->> 'reason'
    when 'waiting_key' then 'A process that has the policy must work out its partition first'
    when 'quarantined' then 'It was refused, and is tried again at ' || coalesce(
        _to_the_second(p_it ->> 'next_at'), 'a later time') || ': '
      || coalesce(p_it ->> 'error', 'its row was locked')
    when 'not_due' then 'It is due at ' || _to_the_second(p_it ->> 'next_at')
    when 'paused' then 'The ' || (p_it #>> '{stop,what}') || ' was paused' || v_because || v_until
    when 'held' then 'The partition is on hold' || v_because || v_until || coalesce(v_besides, '')
    when 'breaker_open' then 'The breaker has stopped the partition, because its jobs kept failing,' || v_until || coalesce(v_besides, '')
    when 'probing' then 'After a hold one job went first, and the others wait for its end'
    when 'strict_order' then 'The policy keeps strict order: the partition waits for a job that failed or was refused, which is '
      || 'tried again at ' || coalesce(_to_the_second(p_it ->> 'next_at'), 'a later time')
    when 'throttle_empty' then 'It waits for tokens of ' || v_of || ': ' || round((v_gate ->> 'free')::numeric, 2) || ' of '
      || round((v_gate #>> '{limit,capacity}')::numeric, 2)
      || coalesce(' per ' || _calendar_in_words(v_gate #>> '{limit,calendar}'), '') || ' are left' || coalesce(
        ', enough in ' || _in_words(
          extract(epoch from (p_it ->> 'next_at')::timestamptz - p_now)::float8), '')
    when 'rate_zero' then 'The rate of ' || v_of || ' is 0: nothing goes until somebody raises it'
    when 'max_zero' then 'The limit of ' || v_of || ' is 0: nothing goes until somebody raises it'
    when 'ahead_full' then 'Enough jobs are admitted to keep the workers busy. It goes when they have run some'
    when 'tick_budget' then 'The last pass admitted as many jobs of the policy as its budget allows. The next pass goes on'
    when 'batch' then 'The last pass admitted as many jobs of the partition as its batch allows. The next pass goes on'
    else case
      when v_gate is not null then 'It waits for ' || v_of || ': ' || (v_gate ->> 'used') || ' of '
        || (v_gate #>> '{limit,max}') || ' are in flight' || _shares_in_words(v_gate -> 'limit') || coalesce(
          ', the oldest for ' || _in_words(
            extract(epoch from p_now - (v_oldest ->> 'admitted_at')::timestamptz)::float8)
          || ' (job ' || (v_oldest ->> 'job_id') || ')', '')
      when (p_it #>> '{place,jobs_before}')::int > 0 then 'Its gates let the next job of its partition go'
      when p_it -> 'ticked_by' = 'null' then 'Nothing holds it back: it only waits for a pass'
      else 'Nothing holds it back: it goes with one of the next passes' end
  end end;
  if v_gate ->> 'source' = 'override' and v_gate #>> '{set_by,hold}' <> 'true' then
    v_more := '. ' || coalesce(v_gate #>> '{set_by,by}', 'Somebody') || ' set this limit'
      || coalesce(' (' || (v_gate #>> '{set_by,reason}') || ')', '')
      || case when v_gate #> '{set_by,where}' <> 'null' then ' for partitions with ' || (v_gate #>> '{set_by,where}')
        when v_gate #> '{set_by,key}' = 'null' and v_gate ->> 'scope' <> 'policy' then ' for every key' else '' end
      || coalesce(' until ' || _to_the_second(v_gate #>> '{set_by,until}'), '');
  end if;
  if (p_it #>> '{place,jobs_before}')::int > 0 then
    v_more := v_more || '. ' || case when (p_it #>> '{place,jobs_before}')::int = 1 then '1 job of its partition goes'
      else (p_it #>> '{place,jobs_before}') || ' jobs of its partition go' end || ' before it';
  end if;
  if p_it -> 'estimate' <> 'null' then
    v_more := v_more || '. Expected to start in ' || _interval_in_words(
      extract(epoch from (p_it #>> '{estimate,from}')::timestamptz - p_now)::float8,
      extract(epoch from (p_it #>> '{estimate,until}')::timestamptz - p_now)::float8);
  end if;
  if p_it -> 'ticked_by' = 'null' then
    v_more := v_more || '. No live worker runs the loop of this policy' || case
      when p_it ->> 'no_estimate' = 'neither a loop nor the crontab ticks its policy' then
        ', and the crontab''s tick does not come: nobody admits its jobs'
      else ': at most the crontab''s tick admits jobs, once a minute' end;
  end if;
  return v_why || v_more || '.';
end
$$;

-- A time of an explanation, as people read it: without the parts of a second.
create or replace function _to_the_second(p_time text) returns text language sql immutable as $$
  select regexp_replace(p_time, '\.\d+', '');
$$;

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

-- A calendar window in words: "day in America/New_York".
create or replace function _calendar_in_words(calendar text)
returns text language sql immutable as $$
  select replace(calendar, ' ', ' in ');
$$;

-- How a cap comes from the shares of the worker pools, in brackets; empty: it does not.
create or replace function _shares_in_words(p_limit jsonb) returns text language sql immutable as $$
  select case when p_limit ? 'share' then ' (' || (p_limit ->> 'share') || ' per worker x ' || (p_limit ->> 'pools')
    || case when (p_limit ->> 'pools')::int = 1 then ' worker' else ' workers' end || ' = ' || n.jobs
    || case when (p_limit ->> 'max')::int < n.jobs then ', but one that was full has just requeued a job' else '' end || ')'
    else '' end
  from (select _shares_in_all((p_limit ->> 'share')::int, (p_limit ->> 'pools')::int) as jobs) n;
$$;

-- Two lengths of time as one in words: "3-6 min", "50 s to 3 min".
create or replace function _interval_in_words(p_from float8, p_until float8)
returns text language plpgsql immutable as $$
declare
  v_from text := _in_words(p_from);
  v_until text := _in_words(p_until);
begin
  return case when v_from = v_until then v_until
    when split_part(v_from, ' ', 2) = split_part(v_until, ' ', 2) then split_part(v_from, ' ', 1) || '-' || v_until
    else v_from || ' to ' || v_until end;
end
$$;

-- What _groups_of returns, in sentences that follow another one.
create or replace function _groups_in_words(p_groups jsonb) returns text language sql immutable as $$
  select coalesce(string_agg(format(' It belongs to job group %s, of which %s of %s jobs are left.',
    g ->> 'id', g ->> 'jobs_left', g ->> 'total'), ''), '')
  from jsonb_array_elements(p_groups) g;
$$;

-- The open job groups of a job, by its staged id and Graphile Worker's, as json; null: it is in none.
create or replace function _groups_of(p_staged_id bigint, p_job_id bigint) returns jsonb language sql stable as $$
  select jsonb_agg(jsonb_build_object('id', g.id::text, 'total', g.total, 'jobs_left', g.jobs_left) order by g.id)
  from group_jobs m
  join groups g on g.id = m.group_id
  where m.staged_id = p_staged_id or m.job_id = p_job_id;
$$;
