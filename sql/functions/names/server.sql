-- The server that a session is connected to, and what a promotion asks for.

-- The server of this session: the system identifier of its cluster and the timeline that it writes, such as "7432:3". A promotion
-- raises the timeline. Where these are not shown, as by some managed services: the second in which the server was started, without
-- an identifier. Of two servers only those of one cluster can be told older and newer.
create or replace function _server_now() returns text language plpgsql volatile as $$
begin
  return (select c.system_identifier from pg_control_system() c) || ':'
    || ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
exception when insufficient_privilege or feature_not_supported or undefined_function then
  return ':' || extract(epoch from pg_postmaster_start_time())::bigint;
end
$$;

-- Meets the server of a session, before it takes an id or a pass decides there. Returns whether jobs may be admitted: after a
-- promotion they wait until each live pool has said what it runs (_say_runs), for five seconds at most.
--
-- The danger: a standby that lags gives ids again that the old primary has given, and a job of then, which runs on, ends or
-- completes another one of now. The cure: on a timeline that is not known yet, the sequences of ids go far ahead, once.
--
-- A session does not outlive its server, so once it may admit, a setting says so, and callers ask that first. A session of a
-- standby cannot come here before the promotion, because it may not write.
--
-- Graphile Worker has no public way to its sequence. The owner of this schema owns that one as well; if it does not, ids come
-- again there.
create or replace function _meet_server() returns boolean language plpgsql volatile as $$
declare
  v_server text := _server_now();
  v_timeline bigint := split_part(v_server, ':', 2);
  v_ids text;
begin
  while (select not s.is_called or s.last_value <> v_timeline from timeline s) loop
    perform from turns u where u.policy_id = 0 and u.step = 'server' and u.place = 0 for update skip locked;
    if not found then   -- another session is at it, and needs no time
      perform pg_sleep(0.01);
    elsif (select not s.is_called from timeline s) then
      perform setval('timeline', v_timeline);
    elsif (select s.last_value <> v_timeline from timeline s) then
      foreach v_ids in array array[pg_get_serial_sequence('staged_jobs', 'id'),
        pg_get_serial_sequence(quote_ident(:'GRAPHILE_WORKER_SCHEMA') || '._private_jobs', 'id')]
      loop
        if has_sequence_privilege(v_ids, 'update') then
          perform setval(v_ids, nextval(v_ids) + 10000000);
        end if;
      end loop;
      perform setval('promoted_at', floor(extract(epoch from clock_timestamp()) * 1000)::bigint);   -- not in the future
      perform setval('timeline', v_timeline);
    end if;
  end loop;
  if exists (
      select from promoted_at s
      where to_timestamp(s.last_value / 1000.0) between clock_timestamp() - interval '5 seconds' and clock_timestamp())
    and exists (
      select from workers w
      where w.server is distinct from v_server and w.slots > 0 and not w.ended and w.buried_at is null) then
    return false;
  end if;
  perform set_config('dispatch_policy.server', :'DISPATCH_POLICY_SCHEMA', false);
  return true;
end
$$;
