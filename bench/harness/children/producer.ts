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
  /** How many a call adds, by turns: each call comes at its time, whether or not the one before has ended. Default: what is due. */
  readonly jobsPerCall?: readonly number[];
}

const EVERY_MS = 10;
/** Each run adds jobs of the same tenants in the same order. */
const SEED = 1;

const { side, url } = readOrders<{ side: SideName; url: string }>();
const utils = await openAdder(side, { policy: openPolicy, connectionString: url, maxPoolSize: 4 });

async function produce({ rate, seconds, tenants, jobsPerCall }: Load): Promise<{ added: number }> {
  const start = performance.now();
  const choices = random(SEED);
  const all = Math.round(rate * seconds);
  const calls: Promise<unknown>[] = [];
  let added = 0;
  const add = (count: number) => {
    const first = Math.floor((moment() / 1000) * (tenants / 10));
    const jobs = Array.from({ length: count }, () => ({
      identifier: TASK,
      payload: { tenant: `tenant-${first + choices.below(tenants)}`, addedAt: moment() },
    }));
    added += count;
    return utils.addJobs(jobs);
  };
  while (added < all && jobsPerCall) {
    await delay(Math.max((added / rate) * 1000 - (performance.now() - start), 0));
    calls.push(add(Math.min(jobsPerCall[calls.length % jobsPerCall.length] as number, all - added)));
  }
  await Promise.all(calls);
  while (added < all) {
    const elapsed = (performance.now() - start) / 1000;
    const due = Math.min(all, Math.ceil(elapsed * rate));
    if (due > added) await add(due - added);
    await delay(EVERY_MS);
  }
  return { added };
}

serve(produce, async () => utils.release());
