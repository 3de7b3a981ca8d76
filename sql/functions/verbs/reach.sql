-- Verbs: what they refuse, whom they concern, and what they would do.

-- Refuses a call that names neither ids nor a policy, a partition without its policy, an unknown policy, or no number of
-- jobs.
create or replace function _check_which(p_verb text, p_ids bigint[], p_policy text, p_partition text, p_count int)
returns void language plpgsql stable as $$
begin
  if p_ids is null and p_policy is null then
    raise exception 'dispatch_policy: %: expected ids or a policy, got neither', p_verb using errcode = 'DPARG';
  elsif p_partition is not null and p_policy is null then
    raise exception 'dispatch_policy: %: partition is %, expected a policy with it, got none', p_verb,
      quote_literal(p_partition) using errcode = 'DPARG';
  end if;
  perform _check_count(p_verb, p_count);
  perform _policy(p_policy) where p_policy is not null;
end
$$;

-- Refuses a step of no jobs.
create or replace function _check_count(p_verb text, p_count int) returns void language plpgsql immutable as $$
begin
  if p_count is null or p_count < 1 then
    raise exception 'dispatch_policy: %: count is %, expected 1 or more', p_verb, coalesce(p_count::text, 'null')
      using errcode = 'DPARG';
  end if;
end
$$;

-- Refuses an end that has passed: the call would change nothing, and its caller would not notice.
create or replace function _check_until(p_verb text, p_until timestamptz, p_now timestamptz, p_way_out text)
returns void language plpgsql immutable as $$
begin
  if p_until <= p_now then
    raise exception 'dispatch_policy: %: until is %, expected a time to come: by the database''s clock it is %; %',
      p_verb, p_until, p_now, p_way_out using errcode = 'DPARG';
  end if;
end
$$;

-- The dry run of a verb for a partition, a policy or all policies: how many policies or partitions match, and what they
-- have.
create or replace function _would_reach(
  p_policy text, p_partition text, p_all boolean,
  out matched int, out changed int, out stored boolean, out partitions int, out staged int, out in_flight int
) language plpgsql as $$
begin
  if p_partition is not null then
    perform _policy(p_policy);
    select r.partitions, r.* into matched, partitions, staged, in_flight
    from _reach(p_policy, _lanes(p_policy, p_partition, true)) r;
  else
    select count(*), coalesce(sum(r.partitions), 0), coalesce(sum(r.staged), 0), coalesce(sum(r.in_flight), 0)
    into matched, partitions, staged, in_flight
    from _targets(p_policy, p_all) t cross join lateral _reach(t.name, null) r;
  end if;
  changed := 0; stored := matched = 0;
end
$$;

-- The policies that a verb applies to: one, or all if the caller said so explicitly.
create or replace function _targets(p_policy text, p_all boolean) returns setof policies language plpgsql as $$
begin
  if (p_policy is null) = not coalesce(p_all, false) then
    raise exception 'dispatch_policy: name a policy, or say "all" => true; got policy %, all %',
      coalesce(quote_literal(p_policy), 'null'), coalesce(p_all::text, 'null') using errcode = 'DPARG';
  elsif p_policy is not null then
    return next _policy_with_jobs(p_policy);
  else
    return query select p.* from policies p order by p.id;
  end if;
end
$$;
