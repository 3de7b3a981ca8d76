// How long quiet tenants' jobs wait beside a flood: loud tenants have added a million jobs in calls of a hundred, and nobody
// has routed them, when a worker starts. So a million arrivals are still to be read. As soon as the worker runs, jobs of new
// tenants are added one by one. Each is a pair: its wait, and the second that it may take.
import type { Ask, Waits } from "../harness/children/quiet.ts";
import { startChild } from "../harness/children.ts";
import { addInCalls, openPolicy, specsOf } from "../harness/jobs.ts";
import type { Ratio } from "../harness/ratio.ts";
import { openSide } from "../harness/sides.ts";

const ALLOWED_MS = 1000;
/** Each call brings an arrival of each of these tenants. */
const LOUD = 100;
const ADDERS = 4;

export const floodRouting: Ratio = {
  name: "flood_routing",
  what: "a quiet job's wait beside unrouted arrivals ÷ the second it may take",
  unit: "ms",
  target: { atMost: 1 },
  settings: { gates: 3, tenants: LOUD, everyMs: 200 },
  size: "floodRouting",
  async measure({ floodRouting: { arrivals, samples } }) {
    const side = await openSide("governed", { policy: openPolicy });
    const add = () => addInCalls(side.utils, specsOf(arrivals / ADDERS, LOUD), LOUD);
    await Promise.all(Array.from({ length: ADDERS }, add));
    await side.pool.query("vacuum analyze");
    const child = startChild("quiet.ts", { side: "governed", url: side.url, tuned: false });
    const { waits } = await child.ask<Ask, Waits>({ samples });
    await child.stop();
    await side.close();
    return { subject: waits, baseline: waits.map(() => ALLOWED_MS) };
  },
};
