-- Raises if a live worker pool has this policy; null: if any pool lives. Such a pool would go on, and find the policy or
-- the schema gone. The message names up to five pools, and says when each counts as dead if it was killed.
create or replace function _refuse_live_workers(p_verb text, p_policy text) returns void language plpgsql volatile as $$
declare
  v_pools text;
  v_count int;
begin
  select string_agg(w.name, ', ') filter (where w.n <= 5), count(*) into v_pools, v_count
  from (
    select format('%s (process %s on %s, heartbeat %s s ago, dead in %s s if it was killed)', x.pool_id,
        coalesce(x.pid::text, '?'), coalesce(x.host, '?'),
        greatest(0, extract(epoch from clock_timestamp() - x.heartbeat_at)::int),
        greatest(1, ceil(extract(epoch from x.stale_at - clock_timestamp()))::int)) as name,
      row_number() over (order by x.pool_id) as n
    from workers x
    where x.stale_at > clock_timestamp() and not x.ended and (p_policy is null or x.definitions ? p_policy)) w;
  if v_count > 0 then
    raise exception 'dispatch_policy: %: live worker pools with %: %, expected none: %; %',
      p_verb, coalesce('policy ' || quote_literal(p_policy), 'the preset'), v_count, v_pools,
      case when p_policy is null
        then 'stop them and wait until killed ones count as dead, or force it'
        else 'take the policy out of their preset first' end
      using errcode = 'DPUSE';
  end if;
end
$$;
