-- Events are read: each feature takes what concerns it, and then they are gone.

-- Applies the oldest thousand events of a policy: to the history, to job groups, to its load, to job keys that are remembered,
-- and to the counts of dropped jobs. One session at a time does so.
--
-- Events of rows that another session has locked stay for a later call: of a partition whose drops are counted, a group, a key.
-- If all of a thousand stay, it goes on with the next ones.
--
--   p_drops   also count the dropped jobs, and return them: whoever asks for them tells of them
--   more      there may be more to read
--   drops     json array of { "partition", "reason", "jobs" }; null: none
create or replace function _consume_events(p_policy text, p_drops boolean, out more boolean, out drops jsonb) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies;
  v_read events[];
  v_events events[];
  v_ids uuid[];
  v_free uuid[];
  v_left bigint[];
  v_after bigint := 0;
  v_deleted int;
  v_dropped events[] := '{}';
begin
  more := false;
  select p.* into v_policy from policies p where p.name = p_policy;
  if not exists (select from events e where e.policy_id = v_policy.id) or not _try_lock_turn(v_policy.id, 'events') then
    return;
  end if;
  for v_page in 1..10 loop
    v_read := array(
      select e from events e
      where e.policy_id = v_policy.id and e.id > v_after and (p_drops or e.kind <> 'dropped') order by e.id limit 1000);
    v_left := '{}';
    v_ids := array(select e.partition_id from unnest(v_read) e where e.kind = 'dropped');
    if v_ids <> '{}' then
      -- the partitions stay locked until their drops are counted; those that another session has locked have to wait
      v_free := array(select q.id from partitions q where q.id = any(v_ids) order by q.id for no key update skip locked);
      v_left := array(
        select e.id from unnest(v_read) e
        where e.kind = 'dropped' and e.partition_id <> all (v_free)
          and exists (select from partitions q where q.id = e.partition_id));
    end if;
    if exists (select from groups) then
      v_left := v_left || _events_to_groups(v_read);
    end if;
    v_events := array(select e from unnest(v_read) e where e.id <> all (v_left) order by e.id);
    -- A new feature is a line here
    if v_policy.history_kept_for is not null then
      perform _events_to_history(v_events);
    end if;
    if v_policy.load_kept_for is not null then
      perform _events_to_load(v_events);
    end if;
    v_left := case when v_policy.unique_for is not null then _events_to_keys(v_events) else '{}' end;
    -- Jobs that ended in workers without this package. While somebody has the policy's row locked, such as a pause in an open
    -- transaction, they stay.
    if exists (select from unnest(v_events) e where e.kind = 'elsewhere') then
      update policies p set ended_elsewhere = p.ended_elsewhere + e.jobs, ended_elsewhere_at = e.at
      from (
        select sum((x.facts ->> 'jobs')::int) as jobs, max(x.at) as at from unnest(v_events) x where x.kind = 'elsewhere') e
      where p.id = (select x.id from policies x where x.id = v_policy.id for no key update skip locked);
      if not found then
        v_left := v_left || array(select e.id from unnest(v_events) e where e.kind = 'elsewhere');
      end if;
    end if;
    delete from events e
    where e.policy_id = v_policy.id and e.id = any(array(select x.id from unnest(v_events) x)) and e.id <> all (v_left);
    get diagnostics v_deleted = row_count;
    more := cardinality(v_read) = 1000;
    v_dropped := array(select e from unnest(v_events) e where e.kind = 'dropped');
    exit when v_deleted > 0 or not more;
    v_after := (v_read[1000]).id;
  end loop;
  if v_dropped = '{}' then
    return;
  end if;
  perform _count_dropped(d.partition_id, sum((d.facts ->> 'jobs')::int)::int) from unnest(v_dropped) d group by d.partition_id;
  insert into activity (policy_id, at, dropped, expired)
  select v_policy.id, clock_timestamp(), sum((d.facts ->> 'jobs')::int),
    coalesce(sum((d.facts ->> 'jobs')::int) filter (where d.facts ->> 'reason' = 'expired'), 0)
  from unnest(v_dropped) d;
  drops := (
    select jsonb_agg(to_jsonb(t) order by t.partition, t.reason)
    from (
      select coalesce(q.key, d.facts ->> 'key') as partition, d.facts ->> 'reason' as reason,
        sum((d.facts ->> 'jobs')::int) as jobs
      from unnest(v_dropped) d left join partitions q on q.id = d.partition_id group by 1, 2) t);
end
$$;

-- Reads whatever there is to read of a policy.
create or replace function _consume_all_events(p_policy text) returns void language plpgsql as $$
begin
  for v_n in 1..1000 loop
    exit when not (_consume_events(p_policy, false)).more;
  end loop;
end
$$;
