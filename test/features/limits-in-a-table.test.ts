// The recipe of docs/operating.md: limits live in a table of the application. It runs examples/accounts/limits.sql.
import { readFileSync } from "node:fs";
import test, { type ExecutionContext } from "ava";
import { concurrency } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { roles } from "../helpers/roles.ts";
import { policyOf, scenario } from "../helpers/scenario.ts";
import { nameOf as tableName } from "../helpers/table.ts";

const RECIPE = readFileSync(new URL("../../examples/accounts/limits.sql", import.meta.url), "utf8");

async function world(t: ExecutionContext) {
  const account = concurrency<{ account: string }>({ name: "account", scope: (ctx) => ctx.account, max: 4 });
  const it = await scenario(t, policyOf("fetch_endpoint", { gates: [account] as never }));
  const { nameOf, as } = roles(t, it, ["app_accounts", "app_account_limits"]);
  await it.rows(RECIPE.replace(/\bapp_\w+/g, nameOf));
  const limits = async () =>
    (await it.utils.limits()).map(({ key, override, by, reason }) => ({ key, ...override, by, reason }));
  return { it, as, nameOf, limits };
}

test("a limit is set, changed and ended with the application's transaction", async (t) => {
  const { it, as, nameOf, limits } = await world(t);
  const app = await as("app_accounts");
  const limit = (key: string, max: number) => {
    return { key, max, by: nameOf("app_accounts"), reason: "table accounts" };
  };
  await app.query("insert into accounts values ('acme', 1), ('beta', null), ('gamma', 2)");
  t.deepEqual(await limits(), [limit("acme", 1), limit("gamma", 2)]);
  await it.stage("9@a 9@b", { account: "acme" });
  await it.stage("9@c", { account: "beta" });
  await it.tickNow();
  t.deepEqual(await it.inFlightBy(), { a: 1, c: 4 }, "acme has one at once, beta the policy's four");
  await app.query("begin; update accounts set jobs_at_once = 3 where id = 'acme'");
  t.deepEqual(await limits(), [limit("acme", 1), limit("gamma", 2)], "not before it commits");
  await app.query("rollback; update accounts set jobs_at_once = 2 where id = 'acme'");
  await it.tickNow();
  t.is((await it.limiter("account", "acme")).in_flight, 2, "who waits is woken");
  await app.query("update accounts set id = 'acme inc', jobs_at_once = 5 where id = 'acme'");
  await app.query("update accounts set jobs_at_once = null where id = 'gamma'");
  t.deepEqual(await limits(), [limit("acme inc", 5)]);
  await app.query("delete from accounts");
  t.deepEqual(await limits(), []);
});

test("the application's role and the trigger's can do no more than that", async (t) => {
  const { it, as, nameOf } = await world(t);
  const app = await as("app_accounts");
  const set = `dispatch_policy.set_limit('fetch_endpoint', 'account', '{"max": 99}')`;
  await t.throwsAsync(app.query(`select ${set}`), { message: /permission denied/ });
  const trigger = await it.transaction();
  await trigger.query(`commit; set role ${nameOf("app_account_limits")}`);
  await t.notThrowsAsync(trigger.query(`select ${set}`));
  for (const other of [
    "select dispatch_policy.pause('fetch_endpoint')",
    "select dispatch_policy.take('fetch_endpoint', 'account', 'acme')",
    "select from dispatch_policy.partitions",
    `select from ${tableName("overrides")}`,
    "select from accounts",
  ])
    await t.throwsAsync(trigger.query(other), { message: /permission denied/ }, other);
});

test("two transactions that change accounts crosswise do not wait for each other's limits", async (t) => {
  const { as, it, limits } = await world(t);
  const [one, other] = [await as("app_accounts"), await as("app_accounts")];
  await one.query("insert into accounts values ('acme', 1), ('beta', 1)");
  await one.query("begin; update accounts set jobs_at_once = 2 where id = 'acme'");
  await other.query("begin; update accounts set jobs_at_once = 3 where id = 'beta'");
  const waiting = one.query("update accounts set jobs_at_once = 4 where id = 'beta'");
  await until("it waits for the account", async () => {
    const [{ n }] = await it.rows(
      "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
    );
    return n === 1;
  });
  await other.query("commit");
  await waiting;
  await one.query("commit");
  t.deepEqual(
    (await limits()).map(({ key, max }) => [key, max]),
    [
      ["acme", 2],
      ["beta", 4],
    ],
  );
});
