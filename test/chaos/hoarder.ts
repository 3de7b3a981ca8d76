// Takes all the connections the server has left, and keeps them until it is told to end.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { isOver, orders, tell } from "./member.ts";

const AT_ONCE = 10;
tell({ ready: true });
for (let full = false; !full && !isOver(); ) {
  const taken = await Promise.allSettled(Array.from({ length: AT_ONCE }, take));
  full = taken.some(({ status }) => status === "rejected");
}
tell({ met: "server full" });
while (!isOver()) await delay(20);
process.exit(0);

async function take(): Promise<void> {
  const client = new pg.Client({ connectionString: orders.url });
  client.on("error", () => {});
  await client.connect();
}
