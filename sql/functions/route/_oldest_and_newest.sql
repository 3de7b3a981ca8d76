-- Of a full batch of the oldest arrivals, the older half stays. As many of the newest take the place of the others, so that
-- a quiet tenant's job is soon routed beside a million older arrivals. If there are not as many, the batch stays as it is.
--
-- Routing may see work in any order. It adds up, and limits go by version and id. A job that goes before a partition's next
-- one makes the partition look again. But an end counts for a breaker in its turn, so ends wait until they are the oldest.
-- Stops do not wait: _route adds them to each batch.
--
--   last   the newest arrival of the batch that has no older one outside
create or replace function _oldest_and_newest(
  p_policy text, p_ids bigint[], out ids bigint[], out last bigint
) language plpgsql stable as $$
declare
  v_half int := cardinality(p_ids) / 2;
  v_older bigint[] := array(
    select u.id from unnest(p_ids) u (id) order by u.id limit cardinality(p_ids) - v_half);
begin
  last := v_older[cardinality(v_older)];
  ids := v_older || array(
    select a.id from (
      select a.id, _portion(sum(octet_length(a.context::text)) over (
        order by a.id desc rows between unbounded preceding and 1 preceding)) as portion
      from (
        select x.id, x.context from arrivals x
        where x.policy = p_policy and x.id > last and x.pause is null and x.outcome is null
        order by x.id desc limit v_half) a
    ) a
    where a.portion = 0 order by a.id desc);
  if cardinality(ids) < cardinality(p_ids) then
    ids := p_ids;
    last := (select max(u.id) from unnest(p_ids) u (id));
  end if;
end
$$;
