-- What lets a job go that waits.

-- Which verb lets something go that `explain` found, as json; null: it does not wait.
--
--   words     what to do, for whoever reads it. The verb stands behind it
--   verb      its SQL function; null: there is nothing to do, or no verb does it
--   options   what it is given, by the names of its options
--
-- Of a job that others of its partition go before, the verb is for the next one of the partition: it lets one job go and not
-- all of them. A limit is raised by so much, and for an hour.
create or replace function _mend(p_it jsonb, p_now timestamptz) returns jsonb language plpgsql stable as $$
declare
  v_reason text := p_it ->> 'reason';
  v_kind text := _reason_kind(v_reason);
  v_acts text := p_it ->> 'acts';
  v_gate jsonb := (select g from jsonb_array_elements(p_it -> 'gates') g where g ->> 'gate' = p_it ->> 'gate');
  v_limit jsonb := v_gate -> 'limit';
  v_long jsonb := case when (p_it ->> 'long')::boolean then jsonb_build_array(p_it -> 'job_id')
    else jsonb_path_query_array(v_gate, '$.holders[*] ? (@.long == true).job_id') end;
  v_policy jsonb := jsonb_build_object('policy', p_it -> 'policy');
  v_owner jsonb := jsonb_build_object(   -- whose limit it is
    'policy', case when v_gate -> 'shared_by' <> 'null' then v_gate -> 'gate' else p_it -> 'policy' end, 'gate', p_it -> 'gate');
  v_partition jsonb := v_policy || jsonb_build_object('partition', p_it -> 'partition');
  v_no_ticks boolean := p_it ->> 'no_estimate' = 'neither a loop nor the crontab ticks its policy';
  v_verb text;
  v_options jsonb;
  v_it text;
begin
  if p_it ->> 'state' = 'failed' then
    return jsonb_build_object('words', 'To bring it back', 'verb', 'retry', 'options',
      jsonb_build_object('ids', jsonb_build_array(p_it -> 'job_id')));
  elsif (v_kind = 'cap' or p_it ->> 'state' = 'running') and v_long <> '[]' and v_no_ticks is not true then
    return jsonb_build_object('words', case when v_long -> 1 is null then 'If job ' || (v_long ->> 0) || ' hangs, to end it'
        else 'If jobs ' || (select string_agg(x, ', ') from jsonb_array_elements_text(v_long) x) || ' hang, to end them' end,
      'verb', 'cancel', 'options', jsonb_build_object('ids', v_long));
  elsif p_it -> 'failed' <> 'null' and v_reason is null then
    return jsonb_build_object('words', 'To bring ' || case p_it #>> '{failed,jobs}' when '1' then 'it' else 'them' end || ' back',
      'verb', 'retry', 'options', v_partition);
  elsif p_it ->> 'state' not in ('staged', 'parked', 'waiting') and v_reason is null then
    return null;
  end if;
  v_verb := case
    when v_kind = 'stop' or v_reason = 'probing' then 'resume'
    when v_kind = 'zero' and v_gate -> 'set_by' <> 'null' or (v_gate #>> '{set_by,lowers}')::boolean then 'clear_limit'
    when v_kind = 'zero' then 'set_limit'
    -- a raised limit takes a pass, and an adaptive one finds its own
    when v_kind = 'cap' and v_gate ->> 'kind' = 'concurrency' and v_no_ticks is not true then 'set_limit'
    -- what others may have spent of a shared limit is not there to be let through
    when v_kind = 'tokens' and v_gate -> 'shared_by' <> 'null' then null
    when v_kind in ('cap', 'tokens') then 'admit'
    when v_reason in ('strict_order', 'not_due', 'quarantined') then 'reschedule_jobs'
    when (v_reason is null or v_kind = 'turn') and p_it -> 'ticked_by' = 'null' then 'tick' end;
  v_options := case v_verb
    when 'resume' then case when p_it #>> '{stop,what}' = 'policy' then v_policy else v_partition end
    when 'clear_limit' then v_owner
      || jsonb_strip_nulls(jsonb_build_object('key', v_gate #> '{set_by,key}', 'where', v_gate #> '{set_by,where}'))
    when 'set_limit' then v_owner
      || jsonb_strip_nulls(jsonb_build_object('key', v_gate -> 'key'))
      || jsonb_build_object('until', p_now + interval '1 hour', 'set', case
        when v_limit ? 'rate' then '{"rate": 1}'
        when v_limit ? 'share' then jsonb_build_object('max', (v_limit ->> 'share')::int + 1)
        else jsonb_build_object('max', (v_gate ->> 'used')::int + 1) end)
    when 'admit' then v_partition || '{"count": 1}'
    when 'reschedule_jobs' then jsonb_build_object('run_at', p_now, 'ids', jsonb_build_array(
      case when v_reason <> 'strict_order' then p_it ->> 'id' else (
        select h.id::text from _waiting_heads(_siblings((p_it ->> 'partition_id')::uuid)) h limit 1) end))
    when 'tick' then v_policy end;
  v_it := 'let ' || case when v_verb is null then null
    when p_it ->> 'state' = 'idle' then 'jobs'
    when (p_it #>> '{place,jobs_before}')::int > 0 and v_verb in ('set_limit', 'admit') then 'the next job of its partition'
    else 'it' end || ' go';
  return jsonb_build_object('verb', v_verb, 'options', v_options, 'words', case
    when v_no_ticks and v_kind is distinct from 'stop' and v_acts is distinct from 'developer'
      then 'Start a worker that has its policy' || coalesce('. To ' || v_it || ' now', '')
    when v_acts = 'developer' then 'Once its cause is mended, ' || coalesce('to ' || v_it, 'it goes by itself')
    when v_acts = 'operator' or p_it ->> 'no_estimate' = 'it is never due' then 'To ' || v_it
    else 'Nothing to do: it goes by itself' || coalesce(' in ' || _start_in_words(p_it, p_now), ', and nobody can tell when')
      || coalesce('. To ' || v_it || ' sooner', '') end);
end
$$;
