-- The overrides of a policy that a tick at `p_now` knows of: those in force, and those that are over. One that was set
-- for at once began when it was set; by a clock that is behind, it is in force all the same.
create or replace function :DISPATCH_POLICY_SCHEMA._overrides_by(p_policy_id int, p_now timestamptz)
returns table (id bigint, gate text, scope_key text, set jsonb, began_at timestamptz, until_at timestamptz)
language sql stable as $$
  select o.id, o.gate, o.scope_key, o.set,
    case when isfinite(o.from_at) or o.set_at > p_now then o.from_at else o.set_at end, o.until_at
  from :DISPATCH_POLICY_SCHEMA._private_overrides o
  where o.policy_id = p_policy_id and o.from_at <= p_now and not (o.taken_back and p_now < o.until_at);
$$;
