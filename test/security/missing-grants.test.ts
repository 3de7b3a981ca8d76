// A role that lacks a right is told so by every way to use the package, and how to get it.
import test, { type ExecutionContext } from "ava";
import { Logger, run, WorkerPreset } from "graphile-worker";
import {
  addJobAdhoc,
  addPolicyJob,
  dispatchPolicyPreset,
  MissingGrantError,
  makePolicyUtils,
} from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { greet } from "../helpers/policies.ts";
import { roles } from "../helpers/roles.ts";
import { silent } from "../helpers/silent.ts";
import { relationOf } from "../helpers/table.ts";

/** A database that another role has set up, and a pool of a role that may do as little as it is granted. */
async function world(t: ExecutionContext) {
  const database = await testDatabase(t);
  const { nameOf } = roles(t, database, ["app_poor"]);
  const role = nameOf("app_poor");
  await database.pool.query(`create role ${role} login`);
  const grant = (what: string) => database.pool.query(`grant ${what} to ${role}`);
  const at = new URL(database.url);
  at.username = role;
  const poor = quietPool(at.href, { max: 4 });
  t.teardown(() => poor.end());
  return { ...database, role, grant, poor, poorUrl: at.href };
}

const told = (denied: string, role?: string) =>
  new RegExp(
    `^permission denied for ${denied}${role === undefined ? "" : ` \\(the connection was made as role "${role}"\\)`}\\. ` +
      "Connect as the role that owns the schemas, or grant what docs/production\\.md#security .* lists",
  );

test("addPolicyJob: the schema, then the function; the cause is PostgreSQL's error", async (t) => {
  const { grant, poor } = await world(t);
  const add = () => addPolicyJob(poor, greet, { name: "Ana" });
  const error = await t.throwsAsync(add, {
    instanceOf: MissingGrantError,
    message: told("schema dispatch_policy"),
    code: "missing_grant",
  });
  t.is((error.cause as { code?: string }).code, "42501");
  await grant("usage on schema dispatch_policy, graphile_worker");
  await t.throwsAsync(add, { instanceOf: MissingGrantError, message: told("function enqueue") });
  await grant("execute on function dispatch_policy.enqueue");
  t.is((await add()).partition, "Ana");
});

test("a client of pg shows its role", async (t) => {
  const { poor, role } = await world(t);
  const client = await poor.connect();
  t.teardown(() => client.release());
  await t.throwsAsync(addPolicyJob(client, greet, { name: "Ana" }), {
    instanceOf: MissingGrantError,
    message: told("schema dispatch_policy", role),
  });
});

test("utils and scripts: Graphile Worker's schema, then ours", async (t) => {
  const { grant, poor, poorUrl, role } = await world(t);
  const options = { connectionString: poorUrl, policies: [greet], logger: silent };
  const each = [() => makePolicyUtils(options), () => addJobAdhoc(options, "greet", { name: "Ana" })];
  for (const one of each)
    await t.throwsAsync(one, { instanceOf: MissingGrantError, message: told("schema graphile_worker") });
  await grant("usage on schema dispatch_policy, dispatch_policy_internal, graphile_worker");
  await grant("select on graphile_worker.migrations");
  for (const one of each)
    await t.throwsAsync(one, {
      instanceOf: MissingGrantError,
      message: told(`table ${relationOf("migrations")}`, role),
    });
  t.is(poor.totalCount, 0);
});

test("a worker does not start", async (t) => {
  const { grant, poor, role } = await world(t);
  await grant("usage on schema dispatch_policy, dispatch_policy_internal, graphile_worker");
  await grant("select on graphile_worker.migrations");
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [greet] })],
    worker: { logger: new Logger(() => () => {}) },
  };
  await t.throwsAsync(run({ preset, pgPool: poor, noHandleSignals: true, taskList: {} }), {
    instanceOf: MissingGrantError,
    message: told(`table ${relationOf("migrations")}`, role),
  });
});
