-- Partitions of a policy whose context has these values, in the order of their ids, for a page of whoever may see these alone.
-- There is no index by context, because each pass would have to maintain it. So it looks through all partitions, but through
-- some `most_read` of them at a time: a call takes as long beside a million.
--
-- The id of a partition is a hash of its key, and would confirm a guess of another's key. So a call ends, and begins, at the id
-- of such a partition, or at a 4,096th of all ids. Whoever tries out beginnings learns no id of others.
--
--   behind    the id behind which it goes on, or the 4,096th in which that lies; null: from the beginning
--   most      how many it returns at most
--   keys      their keys
--   goes_on   the next call's `behind`; null: it has seen all
--   read      how many partitions it has looked at
--
--   select * from dispatch_policy.partitions_with('fetch_endpoint', '{"account": "acme"}', null, 20, 10000);
create or replace function :DISPATCH_POLICY_SCHEMA.partitions_with(
  policy text, "where" jsonb, behind uuid, most int, most_read int
) returns table (keys text[], goes_on uuid, read int) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off   -- else it may sort all before the first
as $$
declare
  v_policy_id int := (select p.id from policies p where p.name = partitions_with.policy);
  v_part text := coalesce(left(partitions_with.behind::text, 3), '000');   -- the 4,096th in which it begins
  v_after uuid := rpad(v_part, 32, '0')::uuid;
  v_ids uuid[] := '{}';
  v_row record;
begin
  keys := '{}';
  read := 0;
  select q.id into v_row from partitions q
  where q.id = partitions_with.behind and q.policy_id = v_policy_id and q.context @> partitions_with."where";
  v_after := coalesce(v_row.id, v_after);
  for v_row in
    select q.id, q.policy_id, q.key, q.context from partitions q
    where q.id > v_after and v_policy_id is not null order by q.id
  loop
    if read >= partitions_with.most_read and left(v_row.id::text, 3) > v_part then
      goes_on := rpad(left(v_row.id::text, 3), 32, '0')::uuid;
      keys := array(
        select u.key from unnest(keys, v_ids) with ordinality u (key, id, n) where u.id <= goes_on order by u.n);
      exit;
    end if;
    read := read + 1;
    if v_row.policy_id = v_policy_id and v_row.context @> partitions_with."where" then
      keys := keys || v_row.key;
      v_ids := v_ids || v_row.id;
      if cardinality(keys) = partitions_with.most then
        goes_on := v_row.id;
        exit;
      end if;
    end if;
  end loop;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.partitions_with from public;
