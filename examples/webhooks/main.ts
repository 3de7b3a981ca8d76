/**
 * The whole project in one go, against the database that DATABASE_URL names: a receiver, a producer and a worker.
 *
 * The worker alone, as in production:
 *
 *   node_modules/.bin/graphile-worker --config graphile.config.ts
 */
import { Logger, run } from "graphile-worker";
import { makePolicyUtils, policyEvents } from "graphile-worker-dispatch-policy";
import pg from "pg";
import preset from "./graphile.config.ts";
import { announceReleases, payOrder, signUp } from "./producer.ts";
import { startReceiver } from "./receiver.ts";

const RELEASES = 30;
const errorsOnly = new Logger(() => (level, message) => {
  if (level === "error") console.log(message.split("\n")[0]);
});
const pool = new pg.Pool({ connectionString: preset.worker.connectionString });
pool.on("error", console.error).on("connect", (client) => client.on("error", console.error));
const receiver = await startReceiver();
const utils = await makePolicyUtils({ preset }); // creates both schemas
try {
  await announceReleases(pool, receiver.url, RELEASES);
  await signUp(pool, receiver.url);
  await payOrder(pool, receiver.url);
  const { policies } = await utils.status();
  console.log(`staged before any worker runs: ${policies[0]?.staged}`);

  const runner = await run({ preset: { extends: [preset], worker: { logger: errorsOnly } } });
  const passes: number[] = [];
  policyEvents(runner.events).on("dispatchPolicy:admit", ({ count }) => passes.push(count));
  await receiver.until(RELEASES + 2);
  await runner.stop();

  console.log(`admitted, pass by pass: ${passes.join(" ")}`);
  const first = (type: string) => receiver.received.findIndex((event) => event.type === type) + 1;
  console.log(`received ${receiver.received.length} events`);
  console.log(`the quiet customer's came as number ${first("customer.created")} and ${first("order.paid")}`);
} finally {
  await utils.release();
  await pool.end();
  receiver.close();
}
