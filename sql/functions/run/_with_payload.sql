-- A batch of one job with another payload, which keeps its digits: json, unlike jsonb, stores the text. Without a payload the
-- batch is returned unchanged.
create or replace function :DISPATCH_POLICY_SCHEMA._with_payload(p_batch json, p_payload json)
returns json language sql immutable as $$
  select case when p_payload is null then p_batch else (
    select json_object_agg(b.key, case when b.key <> 'jobs' then b.value else json_build_array((
      select json_object_agg(j.key, case when j.key = 'payload' then p_payload else j.value end)
      from json_each(b.value -> 0) j)) end)
    from json_each(p_batch) b) end;
$$;
