-- A calendar window in words: "day in America/New_York".
create or replace function _calendar_in_words(calendar text)
returns text language sql immutable as $$
  select replace(calendar, ' ', ' in ');
$$;
