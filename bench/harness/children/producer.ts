// Adds jobs at an even rate, a few at a time, each with the moment of its adding. Its answer is how many, once they are
// added. Partitions come and go: of the tenants, a tenth is new with every second.
import { setTimeout as delay } from "node:timers/promises";
import { random } from "../../../test/helpers/random.ts";
import { openAdder } from "../adder.ts";
import { openPolicy, TASK } from "../jobs.ts";
import { moment } from "../moment.ts";
import type { SideName } from "../sides.ts";
import { readOrders, serve } from "./parent.ts";

export interface Load {
  /** Jobs a second. */
  readonly rate: number;
  readonly seconds: number;
  /** How many have jobs at a time. */
  readonly tenants: number;
}

const EVERY_MS = 10;
/** Each run adds jobs of the same tenants in the same order. */
const SEED = 1;

const { side, url } = readOrders<{ side: SideName; url: string }>();
const utils = await openAdder(side, { policy: openPolicy, connectionString: url, maxPoolSize: 4 });

async function produce({ rate, seconds, tenants }: Load): Promise<{ added: number }> {
  const start = performance.now();
  const choices = random(SEED);
  let added = 0;
  const all = Math.round(rate * seconds);
  while (added < all) {
    const elapsed = (performance.now() - start) / 1000;
    const due = Math.min(all, Math.ceil(elapsed * rate));
    if (due > added) {
      const first = Math.floor((moment() / 1000) * (tenants / 10));
      const jobs = Array.from({ length: due - added }, () => ({
        identifier: TASK,
        payload: { tenant: `tenant-${first + choices.below(tenants)}`, addedAt: moment() },
      }));
      await utils.addJobs(jobs);
      added = due;
    }
    await delay(EVERY_MS);
  }
  return { added };
}

serve(produce, async () => utils.release());
