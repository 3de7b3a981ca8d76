-- The places of staged jobs that are about to leave staging. If a worker pool requeues one, it gets its place again.
create or replace function _places_of(p_candidates candidate[])
returns place[] language sql stable as $$
  select array(
    select row(s.id, s.run_at, s.run_at_given, s.created_at, s.expires_at)::place
    from staged_jobs s
    where s.id = any(array(select c.staged_id from unnest(p_candidates) c where c.chosen)));
$$;
