-- Unstages these staged jobs. Those that have expired are dropped, because Graphile Worker would run them.
--
-- If Graphile Worker refuses the jobs together, it tries halves, down to the single job. A job that is refused alone is set
-- aside with the error, still staged. A job that waits for another transaction stays as it is for the next call; after 40
-- waits the others do as well. So those without a key or a queue, which wait for nobody, come first, and the others come by
-- lot.
--
--   unstaged, parked, replaced   see _unstage
--   refused                         jobs that Graphile Worker refuses
--   expired                         jobs that were dropped
create or replace function _unstage_what_passes(
  p_ids bigint[], out unstaged int, out parked int, out replaced int, out refused int, out expired int
) language plpgsql
set lock_timeout = '50ms' as $$
declare
  v_expired bigint[] := array(
    select s.id from staged_jobs s
    where s.id = any(p_ids) and s.expires_at <= clock_timestamp() order by s.id);
  v_left bigint[] := array(select u from unnest(p_ids) u where u <> all (v_expired));
  v_free bigint[] := array(
    select s.id from staged_jobs s
    where s.id = any(v_left) and s.job_key is null and s.queue_name is null and s.parked_job_id is null order by s.id);
  v_ids bigint[] := v_free || array(select u from unnest(v_left) u where u <> all (v_free) order by random());
  v_todo jsonb := _parts(cardinality(v_free), cardinality(v_ids));
  v_from int;
  v_to int;
  v_waits int := 0;
  v_back record;
begin
  unstaged := 0;
  parked := 0;
  replaced := 0;
  refused := 0;
  expired := cardinality(v_expired);
  perform _drop_expired(v_expired);
  while v_ids <> '{}' and jsonb_array_length(v_todo) > 0 and v_waits < 40 loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    begin
      v_back := _unstage(v_ids[v_from:v_to]);
      unstaged := unstaged + v_back.unstaged;
      parked := parked + v_back.parked;
      replaced := replaced + v_back.replaced;
    exception when others then
      perform set_config('lock_timeout', '5ms', true);
      v_waits := v_waits + case when sqlstate = '55P03' then 1 else 0 end;
      if _concerns_all(sqlstate) then
        raise;
      elsif v_from < v_to then
        v_todo := v_todo || _halves(v_from, v_to);
      elsif sqlstate <> '55P03' then
        refused := refused + 1;
        perform _quarantine(
          v_ids[v_from], v_ids[v_from:v_from], sqlerrm, false, clock_timestamp());
        perform _before_change(v_ids[v_from:v_from]);
      end if;
    end;
  end loop;
end
$$;
