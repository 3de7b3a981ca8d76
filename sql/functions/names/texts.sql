-- Words that several verbs and views say.

-- A length of time in words, with its largest unit: "12 min".
create or replace function _in_words(p_seconds float8) returns text language sql stable as $$
  select case
    when p_seconds < 1 then round(greatest(p_seconds, 0) * 1000) || ' ms'
    when p_seconds < 120 then round(p_seconds) || ' s'
    when p_seconds < 7200 then round(p_seconds / 60) || ' min'
    when p_seconds < 172800 then round(p_seconds / 3600) || ' h'
    else round(p_seconds / 86400) || ' days' end;
$$;

-- The first line of an error, as the history keeps it: at most 1,000 characters.
create or replace function _first_line(error text) returns text language sql immutable as $$
  select left(split_part(error, e'\n', 1), 1000);
$$;

-- What an error has in common with others of its kind: the beginning of its first line, with # for each word that has a digit,
-- such as a number or an id, and for each UUID. Without `set search_path`, so that the planner can put it into a view, as
-- _shown_reason.
create or replace function _error_pattern(error text) returns text language sql immutable return
  regexp_replace(left(split_part(error, e'\n', 1), 200),
    '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-z]*[0-9][0-9a-z]*(?:[.,][0-9][0-9a-z]*)*', '#', 'gi');

-- The last error of a job that was cancelled: by whom and why, with the error that it had before in parentheses.
create or replace function _cancelled_error(p_by text, p_reason text, p_last_error text) returns text
language sql immutable as $$
  select case when strpos(p_last_error, e.text) > 0 then p_last_error
    else e.text || coalesce(' (' || p_last_error || ')', '') end
  from (select 'cancelled by ' || p_by || coalesce(': ' || p_reason, '') as text) e;
$$;

-- The last error of a parked job that is failed for good because a newer one of its key has taken its place.
create or replace function _replaced_error() returns text language sql immutable as $$
  select 'replaced under its job key';
$$;

-- Whether the words of a new stop replace those of the one that a partition has. A hold, which may be a job's, replaces neither
-- those of an operator's pause nor those of a hold that ends later.
create or replace function _tells_of_stop(
  held_before timestamptz, paused_before timestamptz, held timestamptz, now timestamptz
) returns boolean language sql immutable as $$
  select held is null or (paused_before <= now and (held_before <= now or held_before <= held));
$$;
