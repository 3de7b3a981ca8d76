-- Why jobs wait: which reasons there are, how they read, and who sets them.

-- What is known of a reason; no row: it is none. A cap's reason is `<kind>_full`, and is the last one.
--
--   kind       src/policy/reasons.ts says what the kinds mean
--   acts       who has to act. nobody: it ends by itself, with a turn, a time or a job. operator: somebody has set it, and may
--              take it back. developer: what fails is to be mended
--   page       where more is said of it
--   sentence   the words in braces are those of _sentence
create or replace function _known_reasons(p_reason text, out kind text, out acts text, out page text, out sentence text)
returns setof record language sql immutable rows 1 as $$
  select r.kind, r.acts, 'docs/operating.md#' || p_reason, r.sentence from (values
    ('throttle_empty', 'tokens', 'nobody', 'It waits for tokens of {of}: {free} of {capacity}{calendar} are left{enough}'),
    ('rate_zero', 'zero', 'operator', 'The rate of {of} is 0: nothing goes until somebody raises it'),
    ('max_zero', 'zero', 'operator', 'The limit of {of} is 0: nothing goes until somebody raises it'),
    ('cost_over_max', 'zero', 'operator',
      'It takes {takes} slots of {of}, and the limit is {max}: it does not go until somebody raises that'),
    ('ahead_full', 'ahead', 'nobody', 'Enough jobs are admitted to keep the workers busy. It goes when they have run some'),
    ('tick_budget', 'turn', 'nobody',
      'The last pass admitted as many jobs of the policy as its budget allows. The next pass goes on'),
    ('batch', 'turn', 'nobody', 'The last pass admitted as many jobs of the partition as its batch allows. The next pass goes on'),
    ('paused', 'stop', 'operator', 'The {what} was paused{because}{until}'),
    ('held', 'stop', 'nobody', 'The partition is on hold{because}{until}{besides}'),
    ('breaker_open', 'stop', 'developer', 'The breaker has stopped the partition, because its jobs kept failing,{until}{besides}'),
    ('probing', 'order', 'nobody', 'After a hold one job went first, and the others wait for its end'),
    ('strict_order', 'order', 'nobody',
      'The policy keeps strict order: the partition waits for a job that failed or was refused, which is tried again at {again}'),
    ('not_due', 'job', 'nobody', 'It is due at {next_at}'),
    ('older_run', 'job', 'nobody', 'It waits for the end of job {older}, which it has cancelled'),
    ('quarantined', 'job', 'developer', 'It was refused, and is tried again at {again}: {error}'),
    ('waiting_key', 'job', 'nobody', 'A process that has the policy must work out its partition first{fault}'),
    ('%_full', 'cap', 'nobody', 'It waits for {of}: {used} of {max} are in flight{shares}{takes_several}{oldest}')
  ) r (reason, kind, acts, sentence)
  where p_reason like replace(r.reason, '_', '\_') order by r.kind = 'cap' limit 1;
$$;

-- What kind a reason is. Null: it is none.
create or replace function _reason_kind(reason text) returns text language sql immutable as $$
  select r.kind from _known_reasons(reason) r;
$$;

-- What somebody reads who asks why. `p_words` are the words in braces; one that is missing is left out.
create or replace function _said(p_reason text, p_words jsonb) returns text language sql immutable as $$
  -- every second part stood in braces
  select string_agg(case when t.n % 2 = 1 then t.part else coalesce(p_words ->> t.part, '') end, '' order by t.n)
  from _known_reasons(p_reason) r
  cross join lateral regexp_split_to_table(r.sentence, '[{}]') with ordinality t (part, n);
$$;

-- The reason of a limiter that has no room for a job that takes so many slots, by its kind and numbers.
create or replace function _lack_reason(kind text, tokens float8, rate float8, cap int, takes int default 1)
returns text language sql immutable as $$
  select case
    when tokens is not null then case when rate <= 0 then 'rate_zero' else 'throttle_empty' end
    when cap = 0 and kind <> 'ahead' then 'max_zero'
    when takes > cap and kind <> 'ahead' then 'cost_over_max'
    else kind || '_full' end;
$$;

-- The reason of a partition whose gates would let its next job go, after a pass that admitted so many of its jobs.
create or replace function _turn_reason(admitted int, batch_size int) returns text language sql immutable as $$
  select case when admitted >= batch_size then 'batch' else 'tick_budget' end;
$$;

-- Why a partition waits, as the views show it: its policy or it is paused, or held or its breaker is open, whichever ends
-- later, or the last pass denied it.
--
-- It reads the statement's time: with clock_timestamp() the planner would work out each view whole before it sorts and limits.
-- It has no `set search_path`, because the planner can put it into a view only without. Its body is parsed when it is made,
-- and so names the same operators under any search_path.
create or replace function _shown_reason(
  policy_paused_until timestamptz, paused_until timestamptz, held_until timestamptz, breaker_until timestamptz,
  denied_reason text
) returns text language sql stable return
  case when greatest(policy_paused_until, paused_until) > statement_timestamp() then 'paused'
    when greatest(held_until, breaker_until) > statement_timestamp()
      then case when breaker_until > held_until then 'breaker_open' else 'held' end
    else denied_reason end;
