// A steady load at several rates: how long jobs wait from their add to their start, and what each takes of the server's
// processor.
import { openLoad } from "../harness/load.ts";
import type { SideName } from "../harness/sides.ts";
import { countUsage } from "../harness/usage.ts";
import { say } from "./timing.ts";

const SIDES: readonly SideName[] = ["plain", "governed"];
const RATES = (process.env.RATES ?? "25,50,100,200,300,400").split(",").map(Number);
const SECONDS = Number(process.env.SECONDS ?? 6);
const TENANTS = 100;

for (const side of SIDES) {
  const load = await openLoad(side);
  const client = await load.pool.connect();
  await load.run({ rate: 100, seconds: 3, tenants: TENANTS }); // plans and caches
  await load.drained();
  for (const rate of RATES) {
    const usedSince = await countUsage(client);
    const { p50, p99, kept } = await load.run({ rate, seconds: SECONDS, tenants: TENANTS });
    await load.drained();
    const { serverMs } = await usedSince(rate * SECONDS);
    const rounded = (n: number | undefined) => n && Number(n.toFixed(2));
    say(`${side}, ${rate} jobs a second`, {
      ...{ p50Ms: rounded(p50), p99Ms: rounded(p99), kept: rounded(kept) },
      serverMsPerJob: rounded(serverMs),
    });
  }
  client.release();
  await load.close();
}
