-- The same in words.

-- An explanation in words, for somebody who does not know this package. See `explain` for its parts.
create or replace function _sentence(p_it jsonb, p_now timestamptz) returns text language plpgsql stable as $$
declare
  v_gate jsonb := (select g from jsonb_array_elements(p_it -> 'gates') g where g ->> 'gate' = p_it ->> 'gate');
  v_limit jsonb := v_gate -> 'limit';
  v_stop jsonb := p_it -> 'stop';
  v_set jsonb := v_gate -> 'set_by';
  v_shares int := _shares_in_all((v_limit ->> 'share')::int, (v_limit ->> 'pools')::int);
  v_oldest jsonb := v_gate -> 'holders' -> 0;
  v_long jsonb := jsonb_path_query_first(v_gate, '$.holders[*] ? (@.long == true)');
  v_nobody boolean := p_it ->> 'no_estimate' = 'neither a loop nor the crontab ticks its policy';
  v_of text := 'gate "' || (p_it ->> 'gate') || '"' || coalesce(' of ' || (v_gate ->> 'key'), '');
  -- times as people read them: without the parts of a second
  v_next_at text := regexp_replace(p_it ->> 'next_at', '\.\d+', '');
  v_set_until text := ' until ' || regexp_replace(v_set ->> 'until', '\.\d+', '');
  v_until text := coalesce(' until ' || regexp_replace(v_stop ->> 'until', '\.\d+', ''), '');
  v_because text := coalesce(' by ' || (v_stop ->> 'by'), '') || coalesce(' (' || (v_stop ->> 'reason') || ')', '');
  v_besides text := coalesce(case v_stop #>> '{besides,kind}'
    when 'breaker' then '. Its breaker is open besides'
    when 'hold' then '. It is on hold besides' || coalesce(' by ' || (v_stop #>> '{besides,by}'), '') end
    || coalesce(' (' || (v_stop #>> '{besides,reason}') || ')', '')
    || ', until ' || regexp_replace(v_stop #>> '{besides,until}', '\.\d+', ''), '');
  v_before int := p_it #>> '{place,jobs_before}';
  v_history jsonb := p_it -> 'history';
  v_idle_runs text := case when (p_it ->> 'in_flight')::int > 0 then '. ' || (p_it ->> 'in_flight') || ' of it in flight'
    || case when p_it -> 'has_worker' = 'false' then ', and no live worker has the task' else '' end else '' end;
  v_failed text := coalesce('. ' || (p_it #>> '{failed,jobs}') || case p_it #>> '{failed,jobs}'
    when '1' then ' job of it has' else ' jobs of it have' end || ' failed for good: ' || (p_it #>> '{failed,error}'), '');
  v_why text := case p_it ->> 'state'
    when 'unknown' then case
      when p_it ->> 'id' is null and p_it ->> 'partition' is not null then
        'Nothing is known of this partition: no job has had this key lately, or the key is misspelt' || v_failed
      else 'Nothing is known of it: it has finished, was removed, or was never added' end
    when 'idle' then 'No job of the partition waits' || v_idle_runs || v_failed
    when 'failed' then 'It has failed for good, after ' || (p_it ->> 'attempts')
      || case p_it ->> 'attempts' when '1' then ' attempt: ' else ' attempts: ' end
      || coalesce(p_it ->> 'error', 'no error was recorded')
    when 'running' then 'It has run for ' || _in_words(
      extract(epoch from p_now - (p_it ->> 'started_at')::timestamptz)::float8)
      || case when (p_it ->> 'long')::boolean then ', and 95 of 100 jobs of its policy run '
        || _in_words((p_it ->> 'runs_usually')::float8) || ' at most' else '' end
    when 'admitted' then 'It was admitted, and ' || case when exists (
        select from workers w
        where w.stale_at > p_now and not w.ended and p_it ->> 'task_identifier' = any(w.tasks))
      then 'a worker fetches it next' else 'no live worker has its task: it starts when one does' end
    when 'ended' then case v_history ->> 'outcome'
        when 'succeeded' then 'It succeeded' when 'failed' then 'It failed for good'
        when 'removed' then 'It was removed from staging' when 'dropped' then 'It was dropped'
        when 'replaced' then 'A newer job of its key replaced it'
        else 'It is gone, and nobody saw its end: this was found' end
      || ' at ' || (to_jsonb(date_trunc('second', (v_history ->> 'ended_at')::timestamptz)) #>> '{}')
      || coalesce(', after ' || (v_history ->> 'attempts') || case when v_history ->> 'attempts' = '1' then ' attempt'
        else ' attempts' end, '')
      || coalesce(': ' || (v_history ->> 'error'), '')
      || coalesce(case when v_history ->> 'outcome' = 'dropped' and v_history ->> 'error' = 'max_pending' then (
        select ' (' || concat_ws(' and ', (d.may ->> 'partition') || ' of a partition', (d.may ->> 'policy') || ' of the policy')
          || ' may wait, and whenFull is ' || (d.may ->> 'whenFull') || ')'
        from policies p cross join lateral (select p.definition -> 'maxPending' as may) d
        where p.name = p_it ->> 'policy' and d.may <> 'null') end, '')
      || coalesce('. It waited ' || (   -- the longest first
        select _in_words(sum(e.value::numeric)::float8) || ': ' || string_agg(
          replace(e.key, 'in_line', 'in line') || ' ' || _in_words(e.value::float8), ', ' order by e.value::numeric desc)
        from jsonb_each_text(v_history -> 'waited') e), '')
    when 'plain' then 'It is a job of Graphile Worker that no policy holds back'
  end;
begin
  if v_why is not null then   -- it does not wait
    return v_why || '.' || coalesce(' ' || coalesce(p_it #>> '{cancelled,by}', 'Somebody') || ' cancelled it '
      || _in_words(extract(epoch from p_now - (p_it #>> '{cancelled,at}')::timestamptz)::float8) || ' ago'
      || coalesce(' (' || (p_it #>> '{cancelled,reason}') || ')', '') || case p_it ->> 'state'
        when 'running' then '. Its run was told to end.'
        when 'admitted' then '. The worker that fetches it ends it without running it.' end, '');
  end if;
  v_why := case when _reason_kind(p_it ->> 'reason') = 'zero' and (v_set ->> 'hold')::boolean
    then 'G' || substr(v_of, 2) || ' is on hold' || coalesce(' by ' || (v_set ->> 'by'), '')
      || coalesce(' (' || (v_set ->> 'reason') || ')', '') || v_set_until
    when p_it ->> 'reason' is not null then _said(p_it ->> 'reason', jsonb_build_object(
      'of', v_of, 'next_at', v_next_at, 'again', coalesce(v_next_at, 'a later time'),
      'error', coalesce(p_it ->> 'error', 'its row was locked'),
      'fault', '. The last try failed: ' || (p_it ->> 'error') || coalesce('. It is tried again at ' || v_next_at, ''), 'older', p_it ->> 'waits_for',
      'what', v_stop ->> 'what', 'because', v_because, 'until', v_until, 'besides', v_besides,
      'free', round((v_gate ->> 'free')::numeric, 2)::text, 'capacity', round((v_limit ->> 'capacity')::numeric, 2)::text,
      'calendar', ' per ' || replace(v_limit ->> 'calendar', ' ', ' in '),
      'enough', ', enough in ' || _in_words(extract(epoch from (p_it ->> 'next_at')::timestamptz - p_now)::float8),
      'used', v_gate ->> 'used', 'max', v_limit ->> 'max', 'takes', v_gate ->> 'takes',
      'takes_several', case when v_gate ? 'behind' then ', and those that are free are kept for a job before it that takes more'
        else ', and it takes ' || (v_gate ->> 'takes') end,
      'shares', case when v_limit ? 'share' then ' (' || (v_limit ->> 'share') || ' per worker x ' || (v_limit ->> 'pools')
        || case when (v_limit ->> 'pools')::int = 1 then ' worker' else ' workers' end || ' = ' || v_shares
        || case when (v_limit ->> 'max')::int < v_shares then ', but one that was full has just requeued a job' else '' end
        || ')' end,
      'oldest', ', the oldest for ' || _in_words(
          extract(epoch from p_now - (v_oldest ->> 'admitted_at')::timestamptz)::float8)
        || ' (job ' || (v_oldest ->> 'job_id') || ')'))
    when v_before > 0 then 'Its gates let the next job of its partition go'
    when v_nobody then 'Nothing else holds it back'
    when p_it -> 'ticked_by' = 'null' then 'Nothing holds it back: it only waits for a pass'
    else 'Nothing holds it back: it goes with one of the next passes' end;
  return case when v_nobody then 'Nobody admits its jobs: no live worker runs the loop of this policy, and the crontab''s tick '
      || 'does not come. ' else '' end
    || coalesce('Attempt ' || (p_it ->> 'attempts') || ' failed: ' || coalesce(p_it ->> 'error', 'no error was recorded') || '. ', '')
    || v_why
    || case when v_gate ->> 'source' = 'override' and not (v_set ->> 'hold')::boolean then
      '. ' || coalesce(v_set ->> 'by', 'Somebody') || ' set this limit' || coalesce(' (' || (v_set ->> 'reason') || ')', '')
      || case when v_set -> 'where' <> 'null' then ' for partitions with ' || (v_set ->> 'where')
        when v_set -> 'key' = 'null' and v_gate ->> 'scope' <> 'policy' then ' for every key' else '' end
      || coalesce(v_set_until, '') else '' end
    || case when v_before = 1 then '. 1 job of its partition goes before it'
      when v_before > 1 then '. ' || v_before || ' jobs of its partition go before it' else '' end
    || coalesce('. It is of class ' || (p_it #>> '{place,class}') || coalesce(case (p_it #>> '{place,lower_classes_before}')::int
        when 0 then '' when 1 then ', and 1 partition with jobs of a lower class goes before it'
        else ', and ' || (p_it #>> '{place,lower_classes_before}') || ' partitions with jobs of lower classes go before it' end, ''), '')
    || coalesce('. Expected to start in ' || _start_in_words(p_it, p_now), '')
    || coalesce('. All ' || (p_it #>> '{backlog,jobs}') || ' jobs of its partition have their tokens in '
      || _in_words((p_it #>> '{backlog,seconds}')::float8), '')
    || coalesce((
      select string_agg('. A limit of gate "' || (g ->> 'gate') || '" is set for "' || (g ->> 'misspelt') || '", which no job has', '')
      from jsonb_array_elements(p_it -> 'gates') g where g ->> 'misspelt' is not null), '')
    || coalesce('. Job ' || (v_long ->> 'job_id') || ' has run for ' || _in_words(
        extract(epoch from p_now - (v_long ->> 'started_at')::timestamptz)::float8) || ', and 95 of 100 jobs of this policy run '
      || _in_words((v_gate ->> 'runs_usually')::float8) || ' at most', '')
    || case when p_it -> 'ticked_by' = 'null' and v_nobody is not true
      then '. No live worker runs the loop of this policy: at most the crontab''s tick admits jobs, once a minute' else '' end
    || '.';
end
$$;

-- In how long it is expected to start: "3-6 min", "50 s to 3 min". Null: there is no estimate.
create or replace function _start_in_words(p_it jsonb, p_now timestamptz) returns text language sql stable as $$
  select case when t.least = t.most then t.most
    when split_part(t.least, ' ', 2) = split_part(t.most, ' ', 2) then split_part(t.least, ' ', 1) || '-' || t.most
    else t.least || ' to ' || t.most end
  from (select _in_words(extract(epoch from (p_it #>> '{estimate,from}')::timestamptz - p_now)::float8) as least,
    _in_words(extract(epoch from (p_it #>> '{estimate,until}')::timestamptz - p_now)::float8) as most) t;
$$;
