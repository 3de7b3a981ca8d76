-- The application's table, and a trigger that adds a job for each new order. It runs in the transaction that inserts: if
-- that rolls back, there was no job. The role that inserts needs the rights of "A role that only adds jobs" in
-- docs/production.md#security. It may be run again.

create table if not exists orders (
  id bigint generated always as identity primary key,
  shop text not null,
  shipped_at timestamptz
);

-- Once for each statement, because one call for a thousand orders costs far less than a thousand calls.
create or replace function add_shipping_jobs() returns trigger language plpgsql as $$
begin
  perform dispatch_policy.add_jobs(array(
    select row(
      'ship_order', json_build_object('order', id, 'shop', shop), null, null, null, 'ship order ' || id, null, null
    )::graphile_worker.job_spec
    from added order by id));
  return null;
end
$$;

create or replace trigger add_shipping_jobs after insert on orders
  referencing new table as added for each statement execute function add_shipping_jobs();
