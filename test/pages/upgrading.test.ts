// docs/production.md: what it says of a changed definition is what happens to jobs that wait, and to what was counted.
import test, { type ExecutionContext } from "ava";
import {
  concurrency,
  definePolicy,
  makePolicyUtils,
  type PolicyOptions,
  type PolicyUtils,
  throttle,
} from "../../src/index.ts";
import { blocksOf } from "../helpers/readers-project.ts";
import { silent } from "../helpers/silent.ts";
import { emptyWorld } from "./world.ts";

type Payload = { readonly endpointId: string; readonly account: string };
type Options = Omit<PolicyOptions<string, undefined, Payload>, "partitionBy" | "context">;

function fetchEndpoint(
  version: number,
  options: Options,
  partitionBy: "endpointId" | "account" = "endpointId",
) {
  return definePolicy("fetch_endpoint", {
    context: (payload: unknown) => payload as Payload,
    partitionBy,
    version,
    ...options,
  });
}

/** Three jobs of one endpoint, of which the first definition admits one. `deploy` starts a process with another one. */
async function world(t: ExecutionContext, options: Options) {
  const { pool, utils } = await emptyWorld(t, [fetchEndpoint(1, options)]);
  const add = (by: typeof utils) => by.addJob("fetch_endpoint", { endpointId: "ep1", account: "acme" });
  for (let n = 0; n < 3; n++) await add(utils);
  t.is((await utils.tick()).admitted, 1);
  return {
    pool,
    add,
    async deploy(...definition: Parameters<typeof fetchEndpoint>) {
      const deployed = await makePolicyUtils({
        ...{ pgPool: pool, logger: silent },
        policies: [fetchEndpoint(...definition)],
      });
      t.teardown(() => deployed.release());
      return deployed;
    },
    async partitions() {
      const { rows } = await pool.query(
        "select partition, staged, in_flight from dispatch_policy.partitions order by partition",
      );
      return rows.map(
        ({ partition, staged, in_flight }) => `${partition}: ${staged} wait, ${in_flight} in flight`,
      );
    },
  };
}

const one = concurrency({ max: 1 });

test("jobs that wait go by the new number", async (t) => {
  const { deploy, partitions } = await world(t, { gates: [one] });
  t.is((await (await deploy(2, { gates: [concurrency({ max: 2 })] })).tick()).admitted, 1);
  t.deepEqual(await partitions(), ["ep1: 1 wait, 2 in flight"]);
});

test("a gate that comes counts from then on, and so does one with another name", async (t) => {
  const { deploy, partitions } = await world(t, { gates: [one] });
  const renamed = await deploy(2, { gates: [concurrency({ name: "other", max: 1 })] });
  t.is((await renamed.tick()).admitted, 1);
  t.deepEqual(await partitions(), ["ep1: 1 wait, 2 in flight"]);
  const both = [concurrency({ name: "other", max: 9 }), concurrency({ name: "third", max: 1 })];
  t.is((await (await deploy(3, { gates: both })).tick()).admitted, 1);
  t.deepEqual(await partitions(), ["ep1: 0 wait, 3 in flight"]);
});

test("a gate of another scope under its name keeps what it counted, if its key stays", async (t) => {
  const { deploy, add, partitions } = await world(t, { gates: [one] });
  const byKey = concurrency<Payload>({ max: 2, scope: (ctx) => ctx.endpointId });
  const deployed = await deploy(2, { gates: [byKey] });
  await add(deployed);
  t.is((await deployed.tick()).admitted, 1, "one of two slots is occupied from before");
  t.deepEqual(await partitions(), ["ep1: 2 wait, 2 in flight"]);
});

test("with another key, jobs that wait stay in their partitions and keep their cost", async (t) => {
  const gates = [throttle({ rate: 1, per: "1 hour" })];
  const { pool, deploy, add, partitions } = await world(t, { gates });
  const deployed = await deploy(2, { gates, cost: 5 }, "account");
  await add(deployed);
  await deployed.tick();
  t.deepEqual(await partitions(), ["acme: 0 wait, 1 in flight", "ep1: 2 wait, 1 in flight"]);
  const { rows } = await pool.query("select cost from dispatch_policy.staged_jobs");
  t.deepEqual(rows, [{ cost: 1 }, { cost: 1 }]);
});

test("without workers a lower version changes nothing, an operator's number goes before it, and a higher version ends it", async (t) => {
  const { pool, deploy } = await world(t, { gates: [one] });
  const limit = { policy: "fetch_endpoint", gate: "concurrency" };
  const after = async (process: PolicyUtils) => {
    await process.tick();
    const { rows } = await pool.query("select max from dispatch_policy.limiters where gate = 'concurrency'");
    return rows[0].max;
  };
  const newer = await deploy(2, { gates: [concurrency({ max: 3 })] });
  t.is(await after(newer), 3);
  const rolledBack = await deploy(1, { gates: [one] });
  t.is(await after(rolledBack), 3);
  await rolledBack.setLimit({ ...limit, set: { max: 1 } });
  t.is(await after(rolledBack), 1);
  const last = await deploy(3, { gates: [one] });
  await last.clearLimit(limit);
  t.is(await after(last), 1);
});

test("the query after a deployment shows the definition in force, and no other without workers", async (t) => {
  const { pool, deploy } = await world(t, { gates: [one] });
  await deploy(2, { gates: [concurrency({ max: 2 })] });
  const sql = (await blocksOf("docs/production.md")).find(({ text }) =>
    text.includes("dispatch_policy.definitions"),
  );
  const { rows } = await pool.query(sql!.text);
  t.deepEqual(rows, [{ policy: "fetch_endpoint", version: 2, in_force: true, live_workers: 0, differs: [] }]);
});
