// Routes and admits; when nothing is to be done, waits to be told or for a moment.
import { setTimeout as delay } from "node:timers/promises";
import { connect, repeat } from "./world.ts";

const MOMENT_MS = 250;
const engine = connect();
const session = await engine.session();
await session.query("listen dispatch_policy");

let told = false;
let wake = () => {};
session.on("notification", () => {
  told = true;
  wake();
});

await repeat(async () => {
  told = false;
  const routed = await engine.route(session);
  const { claimed } = await engine.admit({ as: session });
  if (routed === -1) await delay(2);
  else if (routed === 0 && claimed === 0 && !told) await toldOrAMoment();
});
await engine.endSessions();
await engine.pool.end();

async function toldOrAMoment(): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, MOMENT_MS);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
