// The connection beside the host's pool: heartbeats, looks for cancelled jobs and cancels of hung statements share it.
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { makeOwnConnection } from "../../src/db/own-connection.ts";
import { testDatabase } from "../helpers/database.ts";

async function connection(t: ExecutionContext) {
  const { pool } = await testDatabase(t);
  const own = makeOwnConnection({
    withPgClient: async () => t.fail("the host's pool is not needed") as never,
    pgPool: pool,
    timeoutMs: 10_000,
    onFallback: (error) => t.fail(error.message),
  });
  t.teardown(own.close);
  return own;
}

test("callbacks that come at once run one after another, on one connection", async (t) => {
  const own = await connection(t);
  const steps: string[] = [];
  const pidOf = (name: string) =>
    own.run(async (client) => {
      steps.push(`${name} begins`);
      const { rows } = await client.query("select pg_backend_pid() as pid");
      await delay(20);
      steps.push(`${name} ends`);
      return rows[0].pid;
    });
  const [one, other] = await Promise.all([pidOf("one"), pidOf("other")]);
  t.is(one, other);
  t.deepEqual(steps, ["one begins", "one ends", "other begins", "other ends"]);
});

test("one that fails leaves a new connection to the next", async (t) => {
  const own = await connection(t);
  const pid = "select pg_backend_pid() as pid";
  const before = (await own.run((client) => client.query(pid))).rows[0].pid;
  const failing = own.run((client) => client.query("select 1 / 0"));
  const after = own.run((client) => client.query(pid));
  await t.throwsAsync(failing, { message: /division by zero/ });
  t.not((await after).rows[0].pid, before);
});
