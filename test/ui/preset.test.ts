// The pages of a preset: its database, its schema, and connections that end with the pages.
import test, { type ExecutionContext } from "ava";
import { WorkerPreset } from "graphile-worker";
import { ArgumentError, definePolicy, dispatchPolicyPreset, makePolicyUtils } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { HERE, sent } from "./world.ts";

const send = definePolicy("send", { partitionBy: "to" });
const authorize = () => ({ name: "ana", role: "operator" }) as const;
const NAMES = ["DATABASE_URL", "PGDATABASE", "DISPATCH_POLICY_SCHEMA"] as const;

/** Sets the environment to these names alone until the test ends. */
function environment(t: ExecutionContext, given: Partial<Record<(typeof NAMES)[number], string>>): void {
  const before = NAMES.map((name) => [name, process.env[name]] as const);
  for (const name of NAMES) delete process.env[name];
  Object.assign(process.env, given);
  t.teardown(() => {
    for (const [name, value] of before)
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
  });
}

/** A database whose policies are in a schema of another name. */
async function world(t: ExecutionContext) {
  const { url, pool } = await testDatabase(t);
  const ours = dispatchPolicyPreset({ policies: [send], schema: "limits" });
  const utils = await makePolicyUtils({ pgPool: pool, preset: { extends: [ours] }, logger: silent });
  t.teardown(() => utils.release());
  await utils.addJob("send", { to: "ana" });
  const open = async () =>
    (
      await pool.query(
        `select count(*)::int as n from pg_stat_activity
         where application_name = 'dispatch_policy' and datname = current_database()`,
      )
    ).rows[0].n;
  return { url, pool, ours, open };
}

test.serial("the pages connect as the workers do, and read the preset's schema", async (t) => {
  const { url, ours, pool } = await world(t);
  const withUrl: GraphileConfig.Preset = { worker: { connectionString: url } };
  for (const [preset, given] of [
    [{ extends: [WorkerPreset, ours], ...withUrl }, {}],
    [{ extends: [ours, withUrl] }, {}],
    [{ extends: [ours] }, { DATABASE_URL: url }],
  ] as const) {
    environment(t, given);
    await using ui = createUi({ preset, authorize });
    t.regex(await (await ui(new Request(`${HERE}/policies`))).text(), />send<\/a>/);
    const form = new URLSearchParams({ policy: "send", reason: "deploy" });
    const done = await (await sent(ui, `${HERE}/act/pause`, form)).text();
    t.regex(done, /role="status">Paused policy send, /);
    t.regex(done, /--by ana --policy-schema limits</);
    t.regex(done, /select \* from limits\.pause\(/);
  }
  const { rows } = await pool.query("select distinct verb, by from limits.audit where verb = 'pause'");
  t.deepEqual(rows, [{ verb: "pause", by: "ana" }]);
});

test.serial("PGDATABASE alone says where, and another schema goes before the preset's", async (t) => {
  const { ours, url } = await world(t);
  environment(t, { PGDATABASE: "no_such_database" });
  await using ui = createUi({ preset: { extends: [ours] }, authorize });
  const answer = await ui(new Request(`${HERE}/policies`));
  t.is(answer.status, 503);
  await using empty = createUi({
    ...{ preset: { extends: [ours], worker: { connectionString: url } }, authorize },
    schema: "elsewhere",
  });
  t.regex(await (await empty(new Request(`${HERE}/policies`))).text(), /elsewhere/);
});

test.serial(
  "release ends the connections that were made, once, and lets a page in the making end",
  async (t) => {
    const { url, ours, open, pool } = await world(t);
    const ui = createUi({ preset: { extends: [ours], worker: { connectionString: url } }, authorize });
    t.is(await open(), 0, "none is made before it is needed");
    await ui(new Request(`${HERE}/`));
    t.true((await open()) > 0);
    const last = ui(new Request(`${HERE}/policies`));
    await Promise.all([ui.release(), ui.release()]);
    t.is((await last).status, 200);
    await ui.release();
    t.is((await ui(new Request(`${HERE}/policies`))).status, 503);

    const ofPool = createUi({ pool, schema: "limits", authorize });
    await ofPool.release();
    t.is((await ofPool(new Request(`${HERE}/policies`))).status, 200, "whoever made the pool closes it");
  },
);

test.serial(
  "a preset that names no database or no policies is refused, and so are both, and neither",
  (t) => {
    environment(t, {});
    const pool = { connect() {} } as never;
    const ours = dispatchPolicyPreset({ policies: [send] });
    const withUrl = { worker: { connectionString: "postgres://a.example/b" } };
    for (const [options, message] of [
      [{ pool, preset: { extends: [ours] } }, /expected pool or preset, got both/],
      [{}, /expected pool or preset, got neither/],
      [
        { preset: "graphile.config.ts" },
        /preset must be a preset of Graphile Worker.*got "graphile\.config\.ts"/,
      ],
      [{ preset: [ours] }, /preset must be a preset/],
      [{ preset: { extends: [WorkerPreset], ...withUrl } }, /preset has no dispatchPolicyPreset/],
      [{ preset: { extends: [ours] } }, /names no database.*Set it, or DATABASE_URL/],
      [{ preset: { ...withUrl, dispatchPolicy: { policies: [send], schema: 7 } } }, /schema must be .*got 7/],
    ] as [object, RegExp][])
      t.throws(() => createUi({ ...options, authorize } as never), { instanceOf: ArgumentError, message });
  },
);
