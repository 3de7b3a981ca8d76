-- The mark of a partition, which the flags of its jobs carry: see _ticket.
create or replace function _mark_of(partition_id uuid) returns text language sql stable as $$
  select left(partition_id::text, 8);
$$;
