// Where a command works: a flag goes before the environment, and that before the configuration.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import test, { type ExecutionContext } from "ava";
import { makePolicyUtils } from "../../src/index.ts";
import { runIn } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { POLICIES } from "./world.ts";

const INDEX = new URL("../../src/index.ts", import.meta.url).href;
const WORKER = pathToFileURL(fileURLToPath(import.meta.resolve("graphile-worker"))).href;
const NOWHERE = "postgres://nobody@127.0.0.1:1/nothing";
const NONE = { DATABASE_URL: "", DISPATCH_POLICY_SCHEMA: undefined, GRAPHILE_WORKER_SCHEMA: undefined };

/** A folder with a configuration, whose schema is one of its own. */
async function world(t: ExecutionContext) {
  const { url, pool } = await testDatabase(t, { migrated: false });
  for (const [policySchema, policies] of [
    ["dispatch_policy", POLICIES.slice(0, 1)],
    ["from_config", POLICIES.slice(0, 2)],
    ["from_env", POLICIES],
  ] as const) {
    const schema = policySchema === "dispatch_policy" ? "graphile_worker" : `worker_${policySchema}`;
    const utils = await makePolicyUtils({ pgPool: pool, schema, policySchema, policies, logger: silent });
    await utils.release();
  }
  const cwd = await mkdtemp(path.join(os.tmpdir(), "command-line-"));
  t.teardown(() => rm(cwd, { recursive: true, force: true }));
  const config = (connection: string) => `
    import { WorkerPreset } from ${JSON.stringify(WORKER)};
    import { dispatchPolicyPreset } from ${JSON.stringify(INDEX)};
    export default {
      extends: [WorkerPreset, dispatchPolicyPreset({ policies: [], schema: "from_config" })],
      worker: { connectionString: ${JSON.stringify(connection)} },
    };`;
  await writeFile(path.join(cwd, "graphile.config.ts"), config(url));
  await writeFile(path.join(cwd, "other.ts"), config(NOWHERE));
  /** How many policies a command sees. Each place has another number of them. */
  const seen = async (env: NodeJS.ProcessEnv, ...args: string[]) => {
    const { stdout, stderr } = await runIn({ cwd, env: { ...NONE, ...env } }, "status", "--json", ...args);
    return stdout === "" ? stderr : JSON.parse(stdout).policies.length;
  };
  return { url, seen, cwd };
}

test("the schema: flag, environment, configuration, default", async (t) => {
  const { url, seen } = await world(t);
  t.is(await seen({}), 2);
  t.is(await seen({ DISPATCH_POLICY_SCHEMA: "from_env" }), 3);
  t.is(await seen({ DISPATCH_POLICY_SCHEMA: "from_env" }, "--policy-schema", "dispatch_policy"), 1);
  t.is(await seen({ DATABASE_URL: url }), 1);
  t.is(await seen({ DATABASE_URL: url }, "--config", "graphile.config.ts"), 2);
});

test("the connection: flag, environment, configuration", async (t) => {
  const { url, seen } = await world(t);
  const refused = /ECONNREFUSED/;
  t.regex(await seen({ DATABASE_URL: NOWHERE }), refused);
  t.is(await seen({ DATABASE_URL: NOWHERE }, "--connection", url), 1);
  t.regex(await seen({ DATABASE_URL: url }, "-c", NOWHERE), refused);
  t.regex(await seen({}, "-C", "other.ts"), refused);
  t.is(await seen({ DATABASE_URL: url }, "-C", "other.ts"), 2);
});

test("without any of them it says what to give", async (t) => {
  const env = { ...NONE };
  const { stderr, code } = await runIn({ cwd: os.tmpdir(), env }, "status");
  t.regex(stderr, /^status: no database: give --connection URL, set DATABASE_URL/);
  t.is(code, 2);
  const absent = await runIn({ cwd: os.tmpdir(), env }, "status", "--config", "absent.ts");
  t.regex(absent.stderr, /^status: --config: there is no file absent\.ts\n/);
  t.is(absent.code, 2);
});
