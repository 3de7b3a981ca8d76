// What the policy promises to customers, tested without a server: node --test policies.test.ts
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { PGlite } from "@electric-sql/pglite";
import type { TaskList } from "graphile-worker";
import { makePolicyUtils } from "graphile-worker-dispatch-policy";
import { pglitePool, runDueJobs, virtualClock } from "graphile-worker-dispatch-policy/testing";
import { deliverWebhook } from "./policies.ts";

const clock = virtualClock(new Date("2030-01-01T00:00:00Z"));
const db = await PGlite.create();
const pool = pglitePool(db);
const utils = await makePolicyUtils({ pgPool: pool, policies: [deliverWebhook] });
after(async () => {
  await utils.release();
  await pool.end();
  await db.close();
  clock.restore();
});

/** Each test has a customer of its own, so it finds full buckets. */
const deliver = (customer: string, host: string, count: number) =>
  utils.addJobs(
    Array.from({ length: count }, (_, id) => ({
      identifier: "deliver_webhook",
      payload: { customer, url: `https://${host}/hook`, event: { id, type: "release" } },
    })),
  );

async function run(task: TaskList[string] = async () => {}) {
  const taskList = { deliver_webhook: task };
  return runDueJobs({ pgPool: pool, policies: [deliverWebhook], taskList });
}

test("an endpoint takes bursts of 5, and 10 a second in all", async () => {
  await deliver("acme", "acme.example", 15);
  const delivered = [(await run()).length];
  for (let tenth = 1; tenth <= 10; tenth++) {
    clock.advance("100 ms");
    delivered.push((await run()).length);
  }
  assert.deepEqual(delivered, [5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
});

test("a customer with several endpoints has 8 deliveries at once", async () => {
  for (const host of ["a.example", "b.example"]) await deliver("initech", host, 5);
  assert.equal((await utils.tick()).admitted, 8);
  assert.equal((await run()).length, 10, "the others start as soon as one is done");
});

test("a delivery that fails is tried again after 1 s, then after 4 s", async () => {
  await deliver("hooli", "hooli.example", 1);
  const fail = async () => {
    throw new Error("503");
  };
  assert.equal((await run(fail))[0]?.attempt, 1);
  clock.advance(999);
  assert.deepEqual(await run(), []);
  clock.advance(1);
  assert.equal((await run(fail))[0]?.attempt, 2);
  clock.advance("4 seconds");
  assert.deepEqual(
    (await run()).map(({ attempt, error }) => [attempt, error]),
    [[3, null]],
  );
});
