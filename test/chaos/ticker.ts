// Ticks: as a loop of its own, by SQL in transactions that stay open for a while, or with a clock that is wrong.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { isLockTimeout } from "../../src/db/outage.ts";
import { makePolicyUtils, runTickLoop } from "../../src/index.ts";
import { silent } from "../helpers/silent.ts";
import { chance, isOver, isTrouble, judge, onCommand, orders, repeat, tell } from "./member.ts";
import { policiesOf, STEP_MS, STEPPED_PASS_MS, TASKS, THROTTLED_STEP_MS, TICK_WITHIN_MS } from "./world.ts";

const PAUSE_MS = 40;
const LONGEST_OPEN_MS = 50;
const policies = Object.values(policiesOf(orders.release));
const options = { connectionString: orders.url, policies, logger: silent };
let session: pg.Client | undefined;

const roles = [loop, openTransactions, wrongClocks];
await roles[orders.place % roles.length]!();
process.exit(0);

async function loop(): Promise<void> {
  const controller = new AbortController();
  onCommand((command) => "end" in command && controller.abort());
  tell({ ready: true });
  while (!isOver()) await runTickLoop({ ...options, signal: controller.signal }).catch(pauseAfter);
}

async function openTransactions(): Promise<void> {
  tell({ ready: true });
  await repeat(async () => {
    if (chance.chance(0.05)) await refused();
    else await inTransaction((client) => tickAndWait(client));
    await delay(chance.between(0, PAUSE_MS));
  });
}

async function tickAndWait(client: pg.Client): Promise<void> {
  await client.query("begin");
  await client.query(`set local statement_timeout = ${TICK_WITHIN_MS}`);
  const policy = chance.pick([...TASKS, null]);
  await open(() => client.query("select * from dispatch_policy.tick($1)", [policy]));
  await open(() => delay(chance.between(0, LONGEST_OPEN_MS)));
  await client.query(chance.chance(0.1) ? "rollback" : "commit");
}

/** Under a fixed snapshot a tick would decide by old counters: it must say so instead. */
async function refused(): Promise<void> {
  await inTransaction(async (client) => {
    await client.query(`begin isolation level ${chance.pick(["repeatable read", "serializable"])}`);
    const pass = client.query("select * from dispatch_policy.tick()").then(
      () => "it ran",
      (error) => {
        if (isTrouble(error)) throw error;
        return error.code as string;
      },
    );
    const code = await pass;
    if (code === "25000") tell({ met: "refused snapshot" });
    else tell({ failure: `a tick under a fixed snapshot: ${code}` });
    await client.query("rollback");
  });
}

async function inTransaction(act: (client: pg.Client) => Promise<void>): Promise<void> {
  session ??= await connect();
  try {
    await act(session);
  } catch (error) {
    // whatever it was in the middle of
    await session.end().catch(() => {});
    session = undefined;
    const { code } = error as { code?: string };
    if (isLockTimeout(error)) tell({ met: "lock timeout" });
    else if (code === "57014") tell({ met: "cut short" });
    // routing and admission in one transaction do not keep to the order of locks
    else if (code === "40P01") tell({ met: "deadlock of a SQL tick" });
    else await pauseAfter(error);
  }
}

async function wrongClocks(): Promise<void> {
  let utils = await makePolicyUtils(options);
  tell({ ready: true });
  await repeat(async () => {
    const now = new Date(Date.now() + chance.between(-STEP_MS, STEP_MS));
    await open(() => utils.tick({ policy: "work", now })).catch(async (error) => {
      await pauseAfter(error);
      await utils.release().catch(() => {});
      utils = await again();
    });
    await throttledStep().catch(pauseAfter);
    await delay(chance.between(0, PAUSE_MS));
  });
}

async function again() {
  for (;;) {
    try {
      return await makePolicyUtils(options);
    } catch (error) {
      await pauseAfter(error);
    }
  }
}

/** The time is read where it is used, and the pass is cut short: see THROTTLED_STEP_MS. */
async function throttledStep(): Promise<void> {
  await inTransaction(async (client) => {
    const step = Math.round(chance.between(-THROTTLED_STEP_MS, THROTTLED_STEP_MS));
    await client.query(`set statement_timeout = ${STEPPED_PASS_MS}`);
    const text =
      "select * from dispatch_policy.tick('call', now => clock_timestamp() + $1 * interval '1 ms')";
    await open(() => client.query(text, [step])).catch((error) => {
      if (error.code !== "57014") throw error;
      tell({ met: "cut short" });
    });
  });
}

async function open<T>(act: () => Promise<T>): Promise<T> {
  tell({ tick: "open" });
  try {
    return await act();
  } finally {
    tell({ tick: "closed" });
  }
}

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: orders.url });
  client.on("error", () => {});
  await client.connect();
  return client;
}

async function pauseAfter(error: unknown): Promise<void> {
  judge(error);
  await delay(250);
}
