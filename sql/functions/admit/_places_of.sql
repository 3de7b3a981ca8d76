-- The places of staged jobs that are about to leave staging. If a worker pool sends one back, it gets its place again.
create or replace function :DISPATCH_POLICY_SCHEMA._places_of(p_candidates :DISPATCH_POLICY_SCHEMA._private_candidate[])
returns :DISPATCH_POLICY_SCHEMA._private_place[] language sql stable as $$
  select array(
    select row(s.id, s.run_at, s.run_at_given, s.created_at, s.expires_at):::DISPATCH_POLICY_SCHEMA._private_place
    from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.id = any(array(select c.staged_id from unnest(p_candidates) c where c.chosen)));
$$;
