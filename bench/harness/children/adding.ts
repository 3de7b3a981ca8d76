// Adds jobs one at a time, on several connections at once, each as fast as it can. Its answer is how long that went on, and how
// long each add took, in ms.
import { openAdder } from "../adder.ts";
import { openPolicy, TASK } from "../jobs.ts";
import type { SideName } from "../sides.ts";
import { readOrders, serve } from "./parent.ts";

export interface AddingOrders {
  readonly side: SideName;
  readonly url: string;
  readonly connections: number;
  readonly tenants: number;
}

export interface Ask {
  readonly seconds: number;
}

export interface Added {
  readonly ms: number;
  readonly took: number[];
}

const { side, url, connections, tenants } = readOrders<AddingOrders>();
const utils = await openAdder(side, {
  policy: openPolicy,
  connectionString: url,
  maxPoolSize: connections,
});
let added = 0;

async function addAll({ seconds }: Ask): Promise<Added> {
  const took: number[] = [];
  const start = performance.now();
  const end = start + seconds * 1000;
  const addOn = async () => {
    for (let before = start; before < end; ) {
      await utils.addJob(TASK, { tenant: `tenant-${added++ % tenants}` });
      const now = performance.now();
      took.push(now - before);
      before = now;
    }
  };
  await Promise.all(Array.from({ length: connections }, addOn));
  return { ms: performance.now() - start, took };
}

serve(addAll, async () => utils.release());
