-- Partitions that have been in line since this time or longer may go before their turn, see _longest_first. Until then
-- fair order is exact.
create or replace function _long_since(now timestamptz)
returns timestamptz language sql stable as $$
  select now - interval '10 seconds';
$$;
