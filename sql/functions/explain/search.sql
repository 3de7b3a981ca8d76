-- What an id, a key or the text of an error leads to.

-- What a text leads to, the best first: policies, partitions, jobs and errors. It is for who knows one word about what does not
-- run.
--
--   query   an id or a key of a job, the key of a partition or a value of its context, the name of a policy, a part of an error
--   max     at most so many rows of each kind, 1 to 100: else errors would stand behind partitions, and nobody would see them
--
-- A row says:
--
--   kind       policy, partition, job, error, or more: the last row, if more may match. Its note says why
--   policy, partition, job_id   as far as it has them. The id of a job is that of the view jobs, or of history
--   state      of a policy: on, off, paused or undeclared. Of a partition: the reason why it waits or is stopped, else waiting, idle
--     (no job waits) or undeclared (as its policy). Of a job: as in the view jobs; of one that has ended, its outcome
--   matched    the text that it was found by
--   rank       1 the id of a job. 2 the key of a partition, or the name of a policy. 3 the job key. 4 one of these but for blanks
--     at its ends, capitals or its form in Unicode. 5 its beginning. 6 a value of the context. 7 a part of it. 8 with one
--     character more, less or another, or two that are swapped; those are looked for only if there is none of the ranks to 4
--   note       what else to know: how a near match differs
--
-- Ranks to 3 and 8 are found by indexes, however much there is. All else it looks for in 100,000 partitions, in 200 job keys from
-- the text on, and in the last 2,000 jobs of Graphile Worker and of the history.
--
--   select * from dispatch_policy.search('cust-06');
create or replace function :DISPATCH_POLICY_SCHEMA.search(query text, max int default 20)
returns table (
  kind text, policy text, partition text, job_id bigint, state text, matched text, note text, rank int
) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set jit = off set synchronize_seqscans = off as $$   -- a scan that begins elsewhere each time would find something else each time
#variable_conflict use_column
declare
  v_text text := coalesce(search.query, '');
  v_trimmed text := _trimmed(v_text);
  v_part text := lower(nullif(left(split_part(v_trimmed, e'\n', 1), 200), '') collate "C");
  v_near text[];
  v_best int;
  v_seen text[] := '{}';
  v_more text[] := '{}';
  v_row record;
begin
  if search.max is null or search.max not between 1 and 100 then
    raise exception 'dispatch_policy: search: max is %, expected 1 to 100', coalesce(search.max::text, 'null')
      using errcode = 'DPARG';
  end if;
  for v_row in
    select * from _search(v_text, v_part, _same_texts(v_trimmed, v_text), search.max)
  loop
    if v_row.n > search.max then
      v_more := v_more || format('of each kind only %s are shown', search.max);
      continue;
    end if;
    v_best := least(v_best, v_row.rank);
    v_seen := v_seen || row(v_row.kind, v_row.policy, v_row.partition, v_row.job_id)::text;
    kind := v_row.kind; policy := v_row.policy; partition := v_row.partition; job_id := v_row.job_id; state := v_row.state;
    matched := v_row.matched; rank := v_row.rank;
    note := case when v_row.rank <> 4 then v_row.note
      when _trimmed(v_row.matched) = v_trimmed then 'near match: blanks at its ends differ'
      when lower(_trimmed(v_row.matched)) = lower(v_trimmed) then 'near match: capitals differ'
      else 'near match: it is encoded otherwise' end;
    return next;
  end loop;
  if coalesce(v_best, 8) > 4 then
    v_near := _near_texts(v_trimmed);
    return query
    select s.kind, s.policy, s.partition, s.job_id, s.state, s.matched, 'near match: one character differs', 8
    from _search(null, null, v_near, search.max) s
    where v_near <> '{}' and s.n <= search.max
      and row(s.kind, s.policy, s.partition, s.job_id)::text <> all (v_seen);   -- such as by its beginning
  end if;
  v_more := v_more
    || case when v_part is not null
        -- as statistics say: to count them takes a tenth of the search
        and (select c.reltuples from pg_class c where c.oid = 'partitions'::regclass) > 90000 then
        'only 100,000 partitions were looked through' end
    || case when v_part is not null and exists (select from :GRAPHILE_WORKER_SCHEMA.jobs offset 2000 limit 1)
      then 'only the last 2,000 jobs of Graphile Worker were looked through for errors' end
    || case when v_part is not null and exists (select from history offset 2000 limit 1)
      then 'only the last 2,000 jobs of the history were looked through' end;
  return query
  select 'more', null::text, null::text, null::bigint, null::text, null::text, string_agg(distinct u.text, '; '), 9
  from unnest(v_more) u (text)
  having count(u.text) > 0;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.search from public;

-- What is called by one of these texts, of each kind at most `p_most` and one more; `n` counts them, the best first.
--
--   p_text   the text as it was given; null: only `p_same` counts
--   p_part   what the text has to begin with or to be a part of, trimmed and without capitals; null: nothing
--   p_same   texts that count as the same
create or replace function _search(p_text text, p_part text, p_same text[], p_most int)
returns table (
  kind text, policy text, partition text, job_id bigint, state text, matched text, note text, rank int, n bigint
) language sql stable as $$
  select f.* from (
    select x.*, row_number() over (
        partition by x.kind order by x.rank, length(x.matched), x.matched collate "C", x.policy, x.job_id desc) as n
    from (
      -- with policies that nobody declared and for which jobs wait (as in the view undeclared_policies, uncounted)
      select 'policy' as kind, n.name as policy, null as partition, null::bigint as job_id,
        case when p.id is null then 'undeclared' when p.paused_until > clock_timestamp() then 'paused'
          when p.enabled then 'on' else 'off' end as state,
        n.name as matched, null as note, r.rank
      from unnest(_names_of_policies()) n (name)
      left join policies p on p.name = n.name
      cross join lateral (select _rank_of(n.name, p_text, p_part, p_same) as rank) r
      where r.rank is not null
      union all
      select 'partition', q.policy, q.partition, null, q.state, q.matched, null, q.rank
      from _found_partitions(p_text, p_part, p_same, p_most) q
      union all
      select 'job', j.policy, j.partition, j.id, j.state, j.matched, null, j.rank
      from _found_jobs(p_text, p_part, p_same, p_most) j
      union all
      select 'error', e.policy, e.partition, e.id, e.state, e.matched,
        case when e.jobs > 1 then format('the last of %s jobs', e.jobs) end, 7
      from _found_errors(p_part, p_most) e
    ) x
  ) f
  where f.n <= p_most + 1
  order by f.rank, array_position(array['partition', 'policy', 'job', 'error'], f.kind), f.n;
$$;

-- How well a text fits: see the ranks of search. 2: it is the same. Null: not at all.
create or replace function _rank_of(p_found text, p_text text, p_part text, p_same text[]) returns int language sql stable as $$
  select case when p_found = p_text then 2
    when p_found = any(p_same) or lower(_trimmed(p_found) collate "C") = p_part then 4
    when starts_with(lower(p_found collate "C"), p_part) then 5
    when strpos(lower(p_found collate "C"), p_part) > 0 then 7 end;
$$;

-- A text without blanks at its ends, those that nobody sees among them.
create or replace function _trimmed(p_text text) returns text language plpgsql stable as $$
begin
  if getdatabaseencoding() <> 'UTF8' then   -- which would refuse the characters below
    return btrim(p_text, e' \t\r\n');
  end if;
  return btrim(p_text, e' \t\r\n' || chr(160) || chr(8203) || chr(8239) || chr(12288) || chr(65279));
end
$$;

-- Texts that count as the same as this one: by capitals, with a blank, and in each form of Unicode. An index finds them.
create or replace function _same_texts(p_trimmed text, p_text text) returns text[] language plpgsql stable as $$
declare
  v_forms text[] := array[p_trimmed];
begin
  if p_trimmed = '' then
    return '{}';
  elsif getdatabaseencoding() = 'UTF8' and octet_length(p_trimmed) > length(p_trimmed) then
    v_forms := v_forms || normalize(p_trimmed, NFC) || normalize(p_trimmed, NFD) || normalize(p_trimmed, NFKC)
      || normalize(p_trimmed, NFKD);
  end if;
  return array(
    select distinct u.text from unnest(v_forms) f (text)
    cross join lateral unnest(
      array[f.text, lower(f.text), upper(f.text), initcap(f.text), f.text || ' ', ' ' || f.text]) u (text)
    where u.text <> p_text);
end
$$;

-- Texts with one character more, less or another, or with two that are swapped: some thousand, which an index finds. Of a short
-- text too many are names of something else, and of a long one there are too many.
create or replace function _near_texts(p_text text) returns text[] language plpgsql immutable as $$
declare
  v_others text[] := regexp_split_to_array('abcdefghijklmnopqrstuvwxyz0123456789-_.:@/ ', '');
  v_length int := length(p_text);
begin
  if v_length not between 4 and 40 then
    return '{}';
  end if;
  return array(
    select distinct u.text from generate_series(0, v_length) i
    cross join lateral (select left(p_text, i) as before, substr(p_text, i + 1) as behind) t
    cross join lateral (
      select t.before || o.one || t.behind as text from unnest(v_others) o (one)
      union all
      select t.before || o.one || substr(t.behind, 2) from unnest(v_others) o (one)
      union all
      select t.before || substr(t.behind, 2)
      union all
      select t.before || substr(t.behind, 2, 1) || left(t.behind, 1) || substr(t.behind, 3)
    ) u
    where u.text <> p_text);
end
$$;

-- The names of policies that were declared, and of others for which jobs wait.
create or replace function _names_of_policies() returns text[] language plpgsql stable as $$
begin
  return array(
    with recursive arrived (name) as (   -- one look at the index for each name
      select min(a.policy) from arrivals a
      union all
      select (select min(a.policy) from arrivals a where a.policy > x.name) from arrived x where x.name is not null
    ),
    keyless (name) as (
      select min(k.policy) from keyless_jobs k
      union all
      select (select min(k.policy) from keyless_jobs k where k.policy > x.name) from keyless x where x.name is not null
    )
    select p.name from policies p
    union select a.name from arrived a where a.name is not null
    union select k.name from keyless k where k.name is not null);
end
$$;

-- The partitions with these keys, and those that a look through 100,000 of them finds by a part of the key or by their context,
-- at most 1,000. One that no router knows yet is found by its whole key, or among 10,000 arrivals.
create or replace function _found_partitions(p_text text, p_part text, p_same text[], p_most int)
returns table (policy text, partition text, state text, matched text, rank int) language plpgsql stable as $$
declare
  v_names text[] := _names_of_policies();
  v_keys text[] := array_remove(p_text || p_same, null);
  v_most int := greatest(20000 / greatest(cardinality(v_keys), 1), 1);   -- of many policies as many as are looked up in a moment
  v_ids uuid[] := array(
    select _partition_id(n.name, k.key) from unnest(v_names[1:v_most]) n (name) cross join unnest(v_keys) k (key));
  v_value text := _trimmed(p_text);
  -- as jsonb writes it
  v_in_text text := ': ' || to_json(v_value)::text;
  v_numbers text[] := case when v_value ~ '^(-?[0-9]+(\.[0-9]+)?|true|false)$'
    then array[': ' || v_value || ',', ': ' || v_value || '}'] end;
begin
  return query
  with hit as materialized (
    select x.* from (
      (select q.policy_id, null as policy, q.key, q.context::text as context
        from partitions q limit case when p_part is null then 0 else 100000 end)
      union all
      (select null, a.policy, a.key, a.context::text from arrivals a limit case when p_part is null then 0 else 10000 end)
    ) x
    where strpos(lower(x.key collate "C"), p_part) > 0 or _has_value(x.context, v_in_text, v_numbers)
    limit 1000
  ),
  seen as (
    select p.name, q.key, case when q.key = p_text then 2 else 4 end as rank, null as context
    from partitions q
    join policies p on p.id = q.policy_id
    where q.id = any(v_ids)
    union all
    select p.name, k.key, case when k.key = p_text then 2 else 4 end, null
    from policies p
    cross join unnest(v_keys) k (key)
    cross join lateral (select _mark_of(_partition_id(p.name, k.key)) as mark) i
    cross join lateral (
      select from partitions q
      where q.id between _marked_id(i.mark, '0') and _marked_id(i.mark, 'f') and q.key = k.key and q.policy_id = p.id limit 1) j
    where p.keyed_scopes and p.name = any(v_names[1:v_most])   -- its partitions may have lanes
    union all
    select n.name, p_text, 2, null
    from unnest(v_names) n (name)
    cross join lateral (   -- one look at the index for each
      select from staged_jobs s where s.partition_id = _partition_id(n.name, p_text) and (s.due or not s.due) limit 1) j
    union all
    select coalesce(h.policy, p.name), h.key,
      least(_rank_of(h.key, p_text, p_part, p_same), case when _has_value(h.context, v_in_text, v_numbers) then 6 end),
      h.context
    from hit h left join policies p on p.id = h.policy_id
  ),
  best as (   -- a partition with lanes has several rows
    select s.name, s.key, min(s.rank) as rank, (array_agg(s.context order by s.rank))[1] as context
    from seen s group by s.name, s.key
    order by min(s.rank), length(s.key), s.key collate "C", s.name limit p_most + 1
  )
  select b.name, b.key, _found_state(b.name, b.key),
    case when b.rank <> 6 then b.key else coalesce((
      select e.key || ' = ' || e.value from jsonb_each_text(b.context::jsonb) e where e.value = v_value limit 1),
      b.context) end,
    b.rank
  from best b;
end
$$;

-- Whether a context, as jsonb writes it, has this value. To take each context apart would take six times as long.
create or replace function _has_value(p_context text, p_in_text text, p_numbers text[]) returns boolean language sql immutable as $$
  select strpos(p_context, p_in_text) > 0
    or p_numbers is not null and (strpos(p_context, p_numbers[1]) > 0 or strpos(p_context, p_numbers[2]) > 0);
$$;

-- What a partition is in, as search says it.
create or replace function _found_state(p_policy text, p_key text) returns text language plpgsql stable as $$
declare
  v_ids uuid[];
  v_it record;
begin
  if not exists (select from policies p where p.name = p_policy) then
    return 'undeclared';
  end if;
  select q.*, p.paused_until as policy_paused_until into v_it
  from policies p join partitions q on q.policy_id = p.id
  where p.name = p_policy and q.id = _partition_id(p_policy, p_key);
  if v_it.id is null or v_it.laned then
    v_ids := _lanes(p_policy, p_key);
    select q.*, p.paused_until as policy_paused_until into v_it
    from policies p join partitions q on q.policy_id = p.id
    where p.name = p_policy and q.id = _first_lane(v_ids);
  end if;
  return coalesce(
    _shown_reason(v_it.policy_paused_until, v_it.paused_until, v_it.held_until, v_it.breaker_until, null),
    case when v_it.staged > 0 or exists (
        select from staged_jobs s where s.partition_id = any(coalesce(v_ids, array[v_it.id])) and (s.due or not s.due))
      then coalesce(v_it.denied_reason, 'waiting') else 'idle' end);
end
$$;

-- Jobs by their ids, and by their job keys.
create or replace function _found_jobs(p_text text, p_part text, p_same text[], p_most int)
returns table (id bigint, policy text, partition text, state text, matched text, rank int) language plpgsql stable as $$
declare
  v_id bigint := case when _trimmed(p_text) ~ '^[0-9]{1,18}$' then _trimmed(p_text)::bigint end;
  v_from text := _trimmed(p_text);
  v_keys text[] := array_remove(p_text || p_same, null);
  v_of_id bigint[];
begin
  if v_id is not null then
    v_of_id := array(
      select v_id
      union select f.job_id from in_flight_jobs f where f.staged_id = v_id
      union select s.parked_job_id from staged_jobs s where s.id = v_id and s.parked_job_id is not null
      -- what has failed for good has no slot, and only its flag has the staged id
      union select j.id from (
        select x.id, x.flags, x.created_at, x.key, x.locked_at, x.attempts, x.max_attempts
        from :GRAPHILE_WORKER_SCHEMA.jobs x order by x.id desc limit 2000) j
      where strpos(j.flags::text, v_id::text) > 0 and _staged_id_of(j.flags) = v_id
        and _is_ours(j.flags, j.created_at, j.key));
  end if;
  return query
  with keyed as materialized (
    select coalesce(s.parked_job_id, s.id) as id, s.job_key as key from staged_jobs s where s.job_key = any(v_keys)
    union
    select j.id, j.key from :GRAPHILE_WORKER_SCHEMA.jobs j where j.key = any(v_keys)
    union
    select coalesce(s.parked_job_id, s.id), s.job_key from (
      select x.id, x.parked_job_id, x.job_key from staged_jobs x
      where x.job_key >= v_from and p_part is not null order by x.job_key limit 200) s
    union
    select j.id, j.key from (
      select x.id, x.key from :GRAPHILE_WORKER_SCHEMA.jobs x
      where x.key >= v_from and p_part is not null order by x.key limit 200) j
  ),
  past as materialized (
    select h.* from history h where h.staged_id = v_id or h.job_id = v_id
    union
    select h.* from (
      select x.* from history x where p_part is not null order by x.staged_id desc limit 2000) h
    where h.job_key = p_text or h.job_key = any(p_same)
  ),
  seen as (
    select u.id, v_id::text as matched, 1 as rank from unnest(v_of_id) u (id)
    union all
    select k.id, k.key, case r.rank when 2 then 3 else r.rank end
    from keyed k cross join lateral (select _rank_of(k.key, p_text, p_part, p_same) as rank) r
    where r.rank <= 5
  ),
  best as (
    select distinct on (s.id) s.* from seen s order by s.id, s.rank
  ),
  live as materialized (
    select j.id, j.staged_id, j.policy, j.partition, j.state, b.matched, b.rank
    from (select x.* from best x order by x.rank, length(x.matched), x.id desc limit p_most + 1) b
    cross join lateral (   -- one look at the index for each
      select y.* from :DISPATCH_POLICY_SCHEMA.jobs y where y.id = b.id limit 1) j
  )
  select l.id, l.policy, l.partition, l.state, l.matched, l.rank from live l
  union all
  (select h.staged_id, p.name, h.partition, coalesce(h.outcome, 'ended'),
    case when v_id in (h.staged_id, h.job_id) then v_id::text else h.job_key end,
    case when v_id in (h.staged_id, h.job_id) then 1 when h.job_key = p_text then 3 else 4 end
  from past h
  left join policies p on p.id = h.policy_id
  where not exists (select from live l where h.staged_id = l.staged_id or l.id in (h.staged_id, h.job_id))
  order by h.staged_id desc limit p_most + 1);
end
$$;

-- Errors that have this text, of the last 2,000 jobs of Graphile Worker, of jobs that were quarantined or have no key yet, and of the last 2,000 that
-- a history knows. Jobs of one task with one error are a row: that of the last one, and how many they are.
create or replace function _found_errors(p_part text, p_most int)
returns table (id bigint, policy text, partition text, state text, matched text, jobs bigint) language plpgsql stable as $$
begin
  if length(p_part) < 3 or p_part is null then
    return;
  end if;
  return query
  with failed as materialized (
    select j.id, null::bigint as past_id, j.task_identifier, j.last_error as error from (
      select x.id, x.task_identifier, x.last_error from :GRAPHILE_WORKER_SCHEMA.jobs x order by x.id desc limit 2000) j
    where j.last_error is not null
    union all
    select s.id, null, s.task_identifier, s.error from (
      select x.id, x.task_identifier, x.error from staged_jobs x
      where x.retry_at is not null and x.waits_for is null and x.parked_job_id is null order by x.retry_at desc limit 2000) s
    where s.error is not null
    union all
    select s.id, null, s.task_identifier, s.error from (
      select k.staged_id from keyless_jobs k where k.retry_at > '-infinity' limit 2000) k
    join staged_jobs s on s.id = k.staged_id and s.error is not null
    union all
    select null, h.staged_id, h.task_identifier, h.error from (
      select x.* from history x order by x.staged_id desc limit 2000) h
    where h.outcome = 'failed' and h.error is not null
      and not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = h.job_id)
  ),
  alike as (
    select f.task_identifier, _first_line(f.error) as line, max(f.id) as id, max(f.past_id) as past_id, count(*) as jobs
    from failed f
    where strpos(lower(case when octet_length(f.error) <= 2000 then f.error else left(f.error, 500) end collate "C"), p_part) > 0
    group by f.task_identifier, _first_line(f.error)
    order by coalesce(max(f.id), max(f.past_id)) desc limit p_most + 1
  )
  select coalesce(j.id, h.staged_id), coalesce(j.policy, p.name), coalesce(j.partition, h.partition), coalesce(j.state, h.outcome),
    a.line, a.jobs
  from alike a
  left join lateral (select y.* from :DISPATCH_POLICY_SCHEMA.jobs y where y.id = a.id limit 1) j on true
  left join history h on a.id is null and h.staged_id = a.past_id
  left join policies p on p.id = h.policy_id;
end
$$;
