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
