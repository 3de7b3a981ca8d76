-- For pages of tenants, and nothing else calls it: whose partitions these are.

-- Partitions of a policy whose context has these values, in the order of their ids, for a page of whoever may see these alone.
-- There is no index by context, because each pass would have to maintain it. So it looks through some `most_read` of all
-- partitions at a time.
--
-- The id of a partition is a hash of its key, and would confirm a guess of another's key. So a call ends, and begins, at the id
-- of such a partition, or at a 4,096th of all ids.
--
--   behind    the id behind which it goes on, or the 4,096th in which that lies; null: from the beginning
--   goes_on   the next call's `behind`; null: it has seen all
--   read      how many partitions it has looked at
create or replace function :DISPATCH_POLICY_SCHEMA.partitions_with(
  policy text, "where" jsonb, behind uuid, most int, most_read int
) returns table (keys text[], goes_on uuid, read int) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off   -- else it may sort all before the first
as $$
declare
  v_policy_id int := (select p.id from policies p where p.name = partitions_with.policy);
  v_part text := coalesce(left(partitions_with.behind::text, 3), '000');   -- the 4,096th in which it begins
  v_after uuid;
  v_ids uuid[] := '{}';
  v_row record;
begin
  keys := '{}'; read := 0;
  v_after := coalesce((
      select q.id from partitions q
      where q.id = partitions_with.behind and q.policy_id = v_policy_id and q.context @> partitions_with."where"),
    rpad(v_part, 32, '0')::uuid);
  for v_row in
    select q.id, q.policy_id, q.key, q.context, q.laned from partitions q
    where q.id > v_after and v_policy_id is not null order by q.id
  loop
    if read >= partitions_with.most_read and left(v_row.id::text, 3) > v_part then
      goes_on := rpad(left(v_row.id::text, 3), 32, '0')::uuid;
      keys := array(
        select u.key from unnest(keys, v_ids) with ordinality u (key, id, n) where u.id <= goes_on order by u.n);
      exit;
    end if;
    read := read + 1;
    if v_row.policy_id = v_policy_id and v_row.context @> partitions_with."where"
      and (not v_row.laned or v_row.id = _newest_lane(v_policy_id, v_row.key)) then
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

-- Whether the context of a partition has these values. It reads no other row. A partition that is not there has none.
create or replace function :DISPATCH_POLICY_SCHEMA.has_context(policy text, partition text, "where" jsonb)
returns boolean language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select exists (
    select from partitions q
    where q.id = _newest_lane((select p.id from policies p where p.name = has_context.policy), has_context.partition)
      and q.context @> has_context."where");
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.has_context from public;
