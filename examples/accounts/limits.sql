-- Limits live in a table of the application: each account may have its own number of jobs at once. The policy's gate is
--   concurrency({ name: "account", scope: (ctx) => ctx.account, max: 4 })
-- and its max is for accounts without a number. A superuser runs this file once, after the policy was declared.

create table accounts (
  id text primary key,
  jobs_at_once int check (jobs_at_once >= 0)   -- null: the policy's max
);

-- The application changes accounts, and cannot call this package. The trigger's role can set limits, and nothing else.
create role app_accounts login;
grant select, insert, update, delete on accounts to app_accounts;

create role app_account_limits nologin;
grant usage on schema dispatch_policy to app_account_limits;
grant execute on function dispatch_policy.set_limit, dispatch_policy.clear_limit to app_account_limits;

create function limit_account() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op <> 'INSERT' and (tg_op = 'DELETE' or new.id <> old.id or new.jobs_at_once is null) then
    perform dispatch_policy.clear_limit('fetch_endpoint', 'account', key => old.id, reason => 'table accounts');
  end if;
  if tg_op <> 'DELETE' and new.jobs_at_once is not null then
    perform dispatch_policy.set_limit('fetch_endpoint', 'account', jsonb_build_object('max', new.jobs_at_once),
      key => new.id, reason => 'table accounts');
  end if;
  return null;
end
$$;
alter function limit_account owner to app_account_limits;

-- Deferred: it runs when the application's transaction commits. One change of a policy's limits waits for another. In the
-- middle of two long transactions that would be a deadlock over accounts, and it would keep operators waiting.
create constraint trigger limit_account after insert or delete or update of id, jobs_at_once on accounts
  deferrable initially deferred for each row execute function limit_account();
