// Routes and admits; when nothing is to be done, waits to be told or for a moment. The first goes at once, as the leader
// of a shard does, and the others each at a moment of their own, beside it or beside one another.
import { setTimeout as delay } from "node:timers/promises";
import { bell, chance, connect, orders, repeat, report } from "./world.ts";

const MOMENT_MS = 250;
const LED_FOR_MS = 10_000;
const engine = connect();
const session = await engine.session();
await session.query("listen dispatch_policy");
const told = bell();
session.on("notification", told.ring);
let jobs = 0;
let routedInPasses = 0;
let ledUntil = 0;

await repeat(async () => {
  if (orders.place === 0 && Date.now() > ledUntil - MOMENT_MS) {
    ledUntil = Date.now() + LED_FOR_MS;
    await engine.isLed();
  }
  // as a tick loop does, or as somebody who asks for a tick
  const turn = chance.chance(0.7) ? await engine.admit({ as: session, routes: true, bounded: true }) : null;
  const routed = turn?.routed ?? (await engine.route(session));
  const { claimed, admitted } = turn && turn.routed !== null ? turn : await engine.admit({ as: session });
  if (turn?.routed) routedInPasses += Math.max(turn.routed, 0);
  jobs += admitted;
  if (routed === 0 && claimed === 0) await told.rung(MOMENT_MS);
  await delay(chance.between(0, orders.longestPauseMs * orders.place));
});
report({ admitted: jobs, routedInPasses });
await engine.endSessions();
await engine.pool.end();
