-- How long a job waited for what, the longest first: "12 s: throttle_empty 10 s, in line 2 s". Null: it did not wait.
create or replace function _waits_in_words(waited jsonb) returns text language sql stable as $$
  select _in_words(sum(e.value::numeric)::float8) || ': ' || string_agg(
    replace(e.key, 'in_line', 'in line') || ' ' || _in_words(e.value::float8), ', '
    order by e.value::numeric desc)
  from jsonb_each_text(waited) e;
$$;
