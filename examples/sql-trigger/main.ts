/** The application inserts orders, and knows nothing of jobs. DATABASE_URL names the database. */
import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, type Task, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { shipOrder } from "./policies.ts";

const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const problemsOnly = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [shipOrder] })],
  worker: { connectionString, concurrentJobs: 4, logger: problemsOnly },
} satisfies GraphileConfig.Preset;

const utils = await makePolicyUtils({ preset }); // creates both schemas, and declares the policy
const app = new pg.Client({ connectionString });
await app.connect();
await app.query(await readFile(new URL("setup.sql", import.meta.url), "utf8"));

await app.query("insert into orders (shop) values ('ana'), ('ana'), ('ana'), ('bo'), ('bo')");
await app.query("begin; insert into orders (shop) values ('bo'); rollback");
const { policies } = await utils.status({ policy: "ship_order" });
console.log(`the trigger staged ${policies[0]?.staged} jobs`);

const running = new Map<string, number>();
let most = 0;
const ship: Task = async (payload, helpers) => {
  const { order, shop } = payload as { order: number; shop: string };
  const atOnce = (running.get(shop) ?? 0) + 1;
  most = Math.max(most, atOnce);
  running.set(shop, atOnce);
  await delay(20);
  await helpers.query("update orders set shipped_at = now() where id = $1", [order]);
  running.set(shop, atOnce - 1);
};
const runner = await run({ preset, taskList: { ship_order: ship } });
const unshipped = "select count(*)::int as n from orders where shipped_at is null";
while ((await app.query<{ n: number }>(unshipped)).rows[0]!.n > 0) await delay(50);
await runner.stop();
await utils.release();
await app.end();
console.log(`all orders are shipped, at most ${most} of a shop at once`);
