-- Routes these arrivals of these partitions, all at once if that is possible. Returns the ids of those it left. These are
-- arrivals of locked partitions, arrivals that give a locked limiter other numbers, and arrivals that raise an error.
--
--   p_has_all   these are all arrivals that there are
--
-- One bad arrival would stop its whole policy. So it finds such arrivals by trying the others in halves, level by level.
-- The number of tries has a bound, and the last of them try single partitions drawn by lot. So each routing step gets
-- further, however many are bad.
create or replace function _route_batch(
  p_policy policies, p_ids bigint[], p_partition_ids uuid[], p_pause_ids bigint[],
  p_now timestamptz, p_has_all boolean
) returns bigint[] language plpgsql
set lock_timeout = '20ms' as $$
declare
  v_parts jsonb := '[]';   -- partitions that are still to be tried, in groups
  v_partition_ids uuid[] := p_partition_ids;
  v_left_ids bigint[];     -- null: the try failed
  v_tries int := 0;
  v_detail text;
  v_half int;
  v_busy_ids uuid[];
begin
  loop
    v_tries := v_tries + 1;
    begin
      -- locks and changes in one subtransaction: a row that is locked outside and changed inside costs a multixact
      v_left_ids := _route_part(
        p_policy, case when v_tries = 1 then p_ids else array(
          select a.id from arrivals a
          where a.policy = (p_policy).name and a.id = any(p_ids) and (a.partition_id in (select unnest(v_partition_ids))) is true) end,
        v_partition_ids, p_pause_ids, p_now, p_has_all);
    exception
      when insufficient_resources or disk_full or out_of_memory or admin_shutdown or crash_shutdown
        or invalid_transaction_state then raise;
      when others then
        get stacked diagnostics v_detail = pg_exception_detail;
        -- the partitions that _change_limiters names
        v_busy_ids := case when v_detail like 'partitions {_%}' then substr(v_detail, 12)::uuid[] end;
        if v_busy_ids is null and cardinality(v_partition_ids) = 1 then
          v_busy_ids := v_partition_ids;
          if sqlstate not in ('55P03', '40P01') then
            raise warning 'dispatch_policy: policy % cannot route the arrivals of partition %, and leaves them for later: %',
              quote_literal((p_policy).name), v_partition_ids[1], sqlerrm;
          end if;
        end if;
        if v_busy_ids is not null then
          v_partition_ids := array(
            select u.id from unnest(v_partition_ids) u (id) where (u.id in (select unnest(v_busy_ids))) is not true);
          v_parts := v_parts || case when v_partition_ids = '{}' then '[]' else jsonb_build_array(v_partition_ids) end;
        else
          v_half := cardinality(v_partition_ids) / 2;
          v_parts := v_parts || jsonb_build_array(v_partition_ids[:v_half], v_partition_ids[v_half + 1:]);
        end if;
    end;
    exit when v_parts = '[]' or v_tries >= 60;
    if v_tries < 45 then
      v_partition_ids := array(select x::uuid from jsonb_array_elements_text(v_parts -> 0) x);
      v_parts := v_parts - 0;
    else
      v_partition_ids := array(
        select x::uuid from jsonb_array_elements(v_parts) part cross join jsonb_array_elements_text(part) x
        order by random() limit 1);
    end if;
  end loop;
  if v_tries = 1 and v_left_ids is not null then
    return v_left_ids;
  end if;
  return _arrivals_left((p_policy).name, p_ids);
end
$$;
