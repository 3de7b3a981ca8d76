-- What partitions, scopes and contexts are called: keys, ids and marks.

-- A partition key from any JSON value, such as a whole payload: the same 32 hex digits as hashKey gives in JavaScript.
--
--   select dispatch_policy.hash_key('{"country": "nz"}');
create or replace function :DISPATCH_POLICY_SCHEMA.hash_key(value jsonb) returns text
language plpgsql immutable strict set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  return left(encode(sha256(convert_to(:DISPATCH_POLICY_INTERNAL._canonical_json(hash_key.value), 'UTF8')), 'hex'), 32);
end
$$;

-- The text of a value that hash_key hashes: as PostgreSQL writes jsonb, with numbers as JavaScript reads them. Keys are
-- sorted by their length and bytes in UTF-8, so that databases of all encodings agree with hashKey in JavaScript. Raises for
-- a number that JavaScript reads as another one's.
create or replace function _canonical_json(p_value jsonb) returns text language plpgsql immutable as $$
declare
  v_number text := case when jsonb_typeof(p_value) = 'number' then _number_text(p_value::text) end;
begin
  if jsonb_typeof(p_value) = 'number' and v_number is null then
    raise exception 'dispatch_policy: hash_key: the number %, expected an integer up to 2^53 - 1, because JavaScript reads others rounded: write it as a text',
      left(p_value::text, 60) using errcode = 'DPKEY';
  end if;
  return case jsonb_typeof(p_value)
    when 'object' then (
      select '{' || coalesce(string_agg(to_json(e.key)::text || ': ' || _canonical_json(e.value), ', '
        order by length(convert_to(e.key, 'UTF8')), convert_to(e.key, 'UTF8')), '') || '}'
      from jsonb_each(p_value) e)
    when 'array' then (
      select '[' || coalesce(string_agg(_canonical_json(e.value), ', ' order by e.ordinality), '') || ']'
      from jsonb_array_elements(p_value) with ordinality e)
    when 'number' then v_number
    else p_value::text end;
end
$$;

-- A number in JSON as JavaScript reads it, written as numberText in JavaScript writes it: never with an exponent. Null: an
-- integer beyond 2^53 - 1, or a number out of range. JavaScript reads several of those as one.
create or replace function _number_text(p_number text) returns text
language plpgsql immutable set extra_float_digits = 1 as $$
declare
  v_number float8;
begin
  v_number := p_number::float8 + 0;   -- -0 is 0
  return case when v_number <> trunc(v_number) then v_number::text::numeric::text
    when abs(v_number) <= 9007199254740991 then v_number::bigint::text end;
exception when numeric_value_out_of_range then
  return null;
end
$$;

-- The id of the row in which a job waits, known before anybody has made it: its partition's, or that of its lane. Jobs of a
-- partition that name different keys at gates over a key of their own, take another number of slots, or are of different classes,
-- wait in lanes: each is charged to what it names, and has a fair key. `lane` has these, see _lane_of and laneOf in
-- src/policy/limits.ts; null: none.
--
-- The length keeps apart two pairs of policy and key that read the same when written together. The ids of all lanes begin with
-- the mark of their partition. So they are found by it, without another index, and a failed job's flag tells its partition when
-- the lane is gone. Its body is parsed when it is made, and so names the same operators under any search_path.
create or replace function _partition_id(policy text, key text, lane text default null) returns uuid
language sql immutable return
  case when lane is null then md5(length(policy)::text || ':' || policy || key)::uuid   -- without ::text it would not be inlined
  else (left(md5(length(policy)::text || ':' || policy || key), 8)
    || right(md5(length(key)::text || ':' || key || lane), 24))::uuid end;

-- The class of these limits' lane if it is a later one, and the keys that are their own, each with its gate and lengths, and how
-- many slots a job takes, as text; null: there is none.
create or replace function _lane_of(limits jsonb, weight float8) returns text language sql immutable as $$
  select nullif(case when _class_of(1 / weight) > 0 then format('class %s ', _class_of(1 / weight)) else '' end
    || coalesce(string_agg(
      format('%s:%s', length(g.value ->> 'gate'), g.value ->> 'gate')
        || coalesce(format('%s:', length(g.value ->> 'key')) || (g.value ->> 'key'), '') || coalesce('x' || (g.value ->> 'cost'), ''), ''
      order by (g.value ->> 'position')::int), ''), '')
  from jsonb_array_elements(limits) g where g.value ?| '{key,cost}';
$$;

-- The rows of a partition, by any of them. As an expression of the caller's query, PostgreSQL inlines it.
create or replace function _lanes_beside(p partitions) returns setof partitions language sql stable rows 1 as $$
  select s.* from partitions s
  where s.id between _marked_id(_mark_of((p).id), '0') and _marked_id(_mark_of((p).id), 'f')
    and s.policy_id = (p).policy_id and s.key = (p).key;
$$;

-- The ids of the rows of the partition to which a row belongs, in one order for all of them. One that does not exist is alone.
-- `p_of_class`: those of its class.
create or replace function _siblings(p_id uuid, p_of_class boolean default false) returns uuid[] language plpgsql stable
set enable_nestloop = on as $$   -- the router's plans have none
begin
  return coalesce((
    select array_agg(s.id order by s.id) from partitions q cross join lateral _lanes_beside(q) s
    where q.id = p_id and q.laned and (not p_of_class or _class_of(1 / s.weight) = _class_of(1 / q.weight))), array[p_id]);
end
$$;

-- The ids that the rows of a partition may have: that which policy and key give, and those of its lanes. `p_unrouted`: also those
-- of lanes that the router has not made yet.
create or replace function _lanes(p_policy text, p_key text, p_unrouted boolean default false)
returns uuid[] language plpgsql stable as $$
declare
  v_id uuid := _partition_id(p_policy, p_key);
  v_mark text := _mark_of(v_id);
  v_ids uuid[] := v_id || array(
    select q.id from partitions q
    where q.policy_id = (select p.id from policies p where p.name = p_policy)
      and q.id between _marked_id(v_mark, '0') and _marked_id(v_mark, 'f') and q.id <> v_id and q.key = p_key);
begin
  if not p_unrouted then
    return v_ids;
  end if;
  return array(
    select unnest(v_ids)
    union
    select a.partition_id from arrivals a
    where a.policy = p_policy and a.key = p_key and exists (
      select from policies p where p.name = p_policy and p.keyed_scopes));
end
$$;

-- The row of a partition whose context and limits are the newest; null: it has none.
create or replace function _newest_lane(p_policy_id int, p_key text) returns uuid language plpgsql stable as $$
declare
  v_ids uuid[] := _lanes((select p.name from policies p where p.id = p_policy_id), p_key);
begin
  return (select q.id from partitions q where q.id = any(v_ids) order by q.version desc, q.arrival_id desc, q.id limit 1);
end
$$;

-- Of the rows of a partition the one that goes next: one with a due job if there is one, by its class, when it may be claimed and
-- its next job. Before the router has made any, it is one with a job.
create or replace function _first_lane(p_ids uuid[]) returns uuid language plpgsql stable as $$
begin
  return (
    select u.id from unnest(p_ids) u (id)
    left join partitions q on q.id = u.id
    order by q.due_at <= clock_timestamp() desc nulls last, q.staged > 0 desc nulls last, _class_of(1 / q.weight), q.eligible_at,
      q.head_priority, q.head_run_at, q.head_id,
      exists (select from staged_jobs s where s.partition_id = u.id and (s.due or not s.due)) desc, u.id limit 1);
end
$$;

-- The partition key at the dotted paths of a definition: bare for one path, a json array of texts for several. Null if the
-- definition's partitionBy is a function.
create or replace function _path_key(p_definition jsonb, p_payload json, p_task text)
returns text language plpgsql stable as $$
declare
  v_paths jsonb := p_definition -> 'partitionPaths';
  v_path text[];
  v_keys text[];
begin
  if jsonb_typeof(v_paths) is distinct from 'array' then
    return null;
  end if;
  -- a loop over expressions, because a query takes 45 us for each job
  for v_place in 0 .. jsonb_array_length(v_paths) - 1 loop
    v_path := string_to_array(v_paths ->> v_place, '.');
    v_keys := v_keys || case json_typeof(p_payload #> v_path)
      when 'string' then p_payload #>> v_path
      when 'number' then _number_key(p_payload #>> v_path)
      end;
    if v_keys[v_place + 1] is not null then
      continue;
    elsif json_typeof(p_payload #> v_path) = 'number' then
      raise exception 'dispatch_policy: policy "%": the payload of % has the number % at partitionBy path %, expected an integer up to 2^53 - 1 or at most 15 digits, because JavaScript reads others rounded: write it as a text',
        p_definition ->> 'name', p_task, left(p_payload #>> v_path, 60), v_paths ->> v_place using errcode = 'DPKEY';
    end if;
    raise exception 'dispatch_policy: policy "%": the payload of % has no string or number at partitionBy path %',
      p_definition ->> 'name', p_task, v_paths ->> v_place using errcode = 'DPKEY';
  end loop;
  return _check_key(case when cardinality(v_keys) = 1 then v_keys[1] else to_json(v_keys)::text end);
end
$$;

-- The key that a number in JSON gives, as keyText in JavaScript. Null: JavaScript does not keep all of its digits, so two
-- tenants might share a key. It keeps an integer up to 2^53 - 1, and any number of at most 15 digits.
create or replace function _number_key(p_number text) returns text language plpgsql immutable as $$
declare
  v_text text;
begin
  if p_number ~ '^(0|-?[1-9]\d{0,14})$' then   -- most are: it spares the subtransaction
    return p_number;
  end if;
  v_text := _number_text(p_number);
  return case when position('.' in v_text) = 0 or length(ltrim(translate(v_text, '-.', ''), '0')) <= 15 then v_text end;
end
$$;

-- Returns the key, and raises if it is too long.
create or replace function _check_key(p_key text) returns text language plpgsql immutable as $$
begin
  if octet_length(p_key) > 1024 then
    raise exception 'dispatch_policy: partition key of % bytes, expected at most 1024: %...', octet_length(p_key),
      left(p_key, 60) using errcode = 'DPKEY';
  end if;
  return p_key;
end
$$;

-- The partition key of a job's payload; null: it has none. Such a job stays in Graphile Worker, and fails at its start
-- with a message that says why.
create or replace function _key_or_null(p_definition jsonb, p_payload json, p_task text)
returns text language plpgsql stable as $$
begin
  return _path_key(p_definition, p_payload, p_task);
-- a data exception: the payload has text that PostgreSQL cannot read, such as a NUL
exception when sqlstate 'DPKEY' or data_exception then
  return null;
end
$$;

-- The scope key that a limit names, or the one that follows from the partition or the policy.
create or replace function _scope_key(scope text, own_key text, partition_key text) returns text language sql immutable as $$
  select case scope when 'partition' then partition_key when 'policy' then '' else own_key end;
$$;

-- The mark of a partition, which the flags of its jobs carry: see _ticket.
create or replace function _mark_of(partition_id uuid) returns text language sql immutable return left(partition_id::text, 8);

-- The least partition id with this mark, if the digit is 0, and the greatest, if it is f; null: it is no mark. With both, the
-- planner finds the partitions by their ids. It has no `set search_path`, as _shown_reason.
create or replace function _marked_id(mark text, digit text) returns uuid language sql immutable return
  case when mark ~ '^[0-9a-f]{8}$' then (mark || translate('-0000-0000-0000-000000000000', '0', digit))::uuid end;

-- The names of a context with their values, each pair as an object: those that a limit by context can ask for. A limit that
-- asks for several is found by the first of them.
create or replace function _pairs_of(context jsonb) returns jsonb[] language sql immutable as $$
  select array(
    select jsonb_build_object(e.key, e.value) from jsonb_each(context) e
    where jsonb_typeof(e.value) in ('string', 'number', 'boolean') order by e.key);
$$;

-- The context by which limits by context apply to a limiter: that of its partition. Null: the policy has no such limit, the
-- limiter counts over more than a partition, or no job of the partition has come.
create or replace function _context_of(limiter limiters) returns jsonb language sql stable as $$
  select q.context from policies p
  join partitions q on q.id = _newest_lane(p.id, limiter.scope_key)
  where p.id = limiter.policy_id and limiter.breadth = 0
    and exists (select from overrides o where o.policy_id = limiter.policy_id and o.context_pair is not null);
$$;

-- The limits of a policy whose gates are constants.
create or replace function _constant_limits(p_definition jsonb) returns jsonb language plpgsql immutable as $$
begin
  return (
    select coalesce(jsonb_agg(
      (g.value -> 'values') || jsonb_build_object(
        'gate', g.value -> 'name', 'kind', g.value -> 'kind', 'scope', g.value -> 'scope', 'position', g.value -> 'position')
        || case when g.value ? 'shared' then '{"shared": true}'::jsonb else '{}' end
      order by (g.value ->> 'position')::int), '[]')
    from jsonb_array_elements(p_definition -> 'gates') g);
end
$$;
