// Routes and admits; when nothing is to be done, waits to be told or for a moment.
import { setTimeout as delay } from "node:timers/promises";
import { bell, connect, orders, repeat } from "./world.ts";

const MOMENT_MS = 250;
const engine = connect();
const session = await engine.session();
await session.query("listen dispatch_policy");
const told = bell();
session.on("notification", told.ring);

await repeat(async () => {
  const routed = await engine.route(session);
  const { claimed } = await engine.admit({ as: session });
  // as a tick loop pauses, and each ticker at another moment
  await delay(Math.random() * orders.longestPauseMs);
  if (routed === 0 && claimed === 0) await told.rung(MOMENT_MS);
});
await engine.endSessions();
await engine.pool.end();
