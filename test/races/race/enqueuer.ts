// Stages jobs, in transactions of which some stay open for a while and some roll back. Or it adds one after the other.
import { setTimeout as delay } from "node:timers/promises";
import { chance, connect, isOver, orders, randomPartition, repeat, report } from "./world.ts";

const MOST_STAGED = 5000;
/** Between two adds: four enqueuers then add some 100 jobs a second. */
const MOST_BETWEEN_MS = 80;
const holdsOpen = orders.place % 2 === 1;
const engine = connect();
const end = Date.now() + orders.seconds * 1000;
let left = orders.jobs;

while (!isOver() && (orders.seconds > 0 ? Date.now() < end : left > 0)) {
  await (orders.alone ? addOne() : stageSome()).catch((error) =>
    report({ failure: `enqueuer: ${error.code} ${error.message}` }),
  );
  if (chance.chance(0.05)) await room();
}
report({ done: true });
await repeat(() => delay(50));
await engine.pool.end();

async function stageSome(): Promise<void> {
  const app = await engine.pool.connect();
  try {
    await app.query("begin");
    const ids = await engine.stage(some(), { as: app });
    if (holdsOpen && chance.chance(0.2)) {
      await delay(chance.between(0, 60));
      ids.push(...(await engine.stage(some(), { as: app })));
    }
    if (chance.chance(0.05)) {
      await app.query("rollback");
      return;
    }
    await app.query("commit");
    left -= ids.length;
    report({ staged: ids });
  } catch (error) {
    await app.query("rollback").catch(() => {});
    throw error;
  } finally {
    app.release();
  }
}

async function addOne(): Promise<void> {
  const { id, admitted } = await engine.addAlone(randomPartition());
  left -= 1;
  report({ staged: [id], wentAtOnce: admitted ? 1 : 0 });
  await delay(chance.between(0, MOST_BETWEEN_MS));
}

function some(): string[] {
  return Array.from({ length: 1 + chance.below(40) }, randomPartition);
}

/** Lets the others catch up. */
async function room(): Promise<void> {
  while (!isOver() && (await engine.table("staged_jobs").count()) > MOST_STAGED) await delay(500);
}
