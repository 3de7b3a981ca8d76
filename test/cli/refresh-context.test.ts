// refresh-context: the limits are worked out by the policies of the configuration, or by SQL if there is nothing to work out.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import test, { type ExecutionContext } from "ava";
import { type AnyPolicy, makePolicyUtils } from "../../src/index.ts";
import { runIn } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";

const INDEX = new URL("../../src/index.ts", import.meta.url).href;

/** A configuration with one policy, whose cap is a function of the plan. */
const configWith = (ofPro: number) => `
  import { definePolicy, dispatchPolicyPreset } from ${JSON.stringify(INDEX)};
  export const policy = definePolicy("fetch_endpoint", {
    context: ({ account }) => ({ account, plan: "free" }),
    partitionBy: (ctx) => ctx.account,
    gates: ({ concurrency }) => [concurrency({ max: (ctx) => (ctx.plan === "pro" ? ${ofPro} : 1) })],
  });
  export default { extends: [dispatchPolicyPreset({ policies: [policy] })] };`;

async function world(t: ExecutionContext) {
  const { url, pool } = await testDatabase(t);
  const cwd = await mkdtemp(path.join(os.tmpdir(), "refresh-context-"));
  t.teardown(() => rm(cwd, { recursive: true, force: true }));
  await writeFile(path.join(cwd, "graphile.config.ts"), configWith(3));
  await writeFile(path.join(cwd, "other.ts"), configWith(7));
  const { policy } = (await import(pathToFileURL(path.join(cwd, "graphile.config.ts")).href)) as {
    policy: AnyPolicy;
  };
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  const cli = (...args: string[]) =>
    runIn(
      { cwd, env: { DATABASE_URL: url } },
      ...["refresh-context", "--policy", "fetch_endpoint", "--where", "account=acme", "--context"],
      ...args,
    );
  return { pool, utils, cli };
}

test("with the configuration another plan counts from the next pass", async (t) => {
  const { utils, cli, pool } = await world(t);
  await utils.addJobs(
    ["acme", "acme", "acme", "beta", "beta"].map((account) => ({
      ...{ identifier: "fetch_endpoint", payload: { account } },
    })),
  );
  t.is((await utils.tick()).admitted, 2);
  const alone = await cli("plan=pro");
  t.regex(
    alone.stderr.replaceAll("\n", " "),
    /^refresh-context: policy 'fetch_endpoint' has functions of the context, which SQL cannot call: gate 'concurrency'\. .* or the command refresh-context with --config/,
  );
  t.is(alone.code, 2);
  const stale = await cli("plan=pro", "--config", "other.ts");
  t.regex(stale.stderr, /this process has another definition/);
  t.is(stale.code, 2);
  t.is((await utils.tick()).admitted, 0, "nothing has changed");
  t.like(await cli("plan=pro", "--config", "graphile.config.ts", "--by", "ana"), {
    stdout: "Changed the context of 1 of 1 partition to plan=pro.\n",
    code: 0,
  });
  t.is((await utils.tick()).admitted, 2, "acme has three at once, and beta one");
  const { rows } = await pool.query("select verb, by, changed from dispatch_policy.audit");
  t.deepEqual(rows, [{ verb: "refresh_context", by: "ana", changed: 1 }]);
});
