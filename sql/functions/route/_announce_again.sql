-- A tick ahead of the database's clock has announced some overrides too early. Once their time has come by that clock
-- (`p_clock`), they are announced again from the start. It skips locked rows: a later routing step comes to them.
create or replace function _announce_again(p_policy_id int, p_clock timestamptz) returns void
language sql volatile as $$
  update overrides o
  set announced_to = null, announce_at = least(o.announce_at, o.announce_again_at), announce_again_at = 'infinity'
  where o.id = any(array(
    select x.id from overrides x
    where x.policy_id = p_policy_id and x.announce_again_at <= p_clock
      and least(x.announce_at, x.announce_again_at) <= p_clock   -- it follows from the line above: for the index
    order by x.id for update skip locked));
$$;
