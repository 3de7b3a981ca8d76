-- A length of time in words, with its largest unit: "12 min".
create or replace function _in_words(p_seconds float8)
returns text language sql stable as $$
  select case
    when p_seconds < 1 then round(greatest(p_seconds, 0) * 1000) || ' ms'
    when p_seconds < 120 then round(p_seconds) || ' s'
    when p_seconds < 7200 then round(p_seconds / 60) || ' min'
    when p_seconds < 172800 then round(p_seconds / 3600) || ' h'
    else round(p_seconds / 86400) || ' days' end;
$$;
