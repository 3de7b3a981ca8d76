-- Raises unless a limit by context makes sense for the gate. Only the limiter of a partition belongs to one context. One that
-- counts over a key is shared by partitions whose contexts may differ.
create or replace function _check_where(
  p_verb text, p_policy policies, p_gate text, p_key text, p_where jsonb
) returns void language plpgsql as $$
declare
  v_scope text := (
    select g.value ->> 'scope' from jsonb_array_elements((p_policy).definition -> 'gates') g where g.value ->> 'name' = p_gate);
  v_fits boolean := case when jsonb_typeof(p_where) = 'object' then p_where <> '{}'
    and cardinality(_pairs_of(p_where)) = (select count(*) from jsonb_object_keys(p_where))
    else false end;
begin
  if p_where is null then
    return;
  elsif p_key is not null then
    raise exception 'dispatch_policy: %: key is % and where is %, expected one of them', p_verb,
      quote_literal(left(p_key, 60)), left(p_where::text, 60) using errcode = 'DPARG';
  elsif v_scope <> 'partition' then
    raise exception 'dispatch_policy: %: where is %, expected none: gate % counts over %, and not over a partition, which has a context. Name its key, or leave both out',
      p_verb, left(p_where::text, 60), quote_literal(p_gate),
      case v_scope when 'policy' then 'the whole policy' else 'a key' end using errcode = 'DPARG';
  elsif not v_fits then
    raise exception 'dispatch_policy: %: where is %, expected an object of names in the context with a text, a number or a boolean each',
      p_verb, left(p_where::text, 60) using errcode = 'DPARG';
  end if;
end
$$;
