-- Raises for a policy that nobody has declared. The message names those that were declared.
create or replace function _unknown_policy(p_policy text) returns void language plpgsql as $$
begin
  raise exception 'dispatch_policy: unknown policy %; known: %', coalesce(quote_literal(p_policy), 'null'), coalesce(
      (select string_agg(quote_literal(p.name), ', ' order by p.name)
        from policies p), 'none')
    using errcode = 'DPPOL';
end
$$;
