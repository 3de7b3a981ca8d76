/** What a storm found: how busy the machine was, and how many admitted jobs waited for workers. */
import os from "node:os";
import pg from "pg";

export interface Load {
  /** Which share of their time the machine's processors worked, for whatever program. */
  readonly busy: number;
  /** Admitted jobs, in the mean of all looks, and those of them that no worker had started. */
  readonly admitted: number;
  readonly notStarted: number;
}

export interface LoadMeter {
  look(): Promise<void>;
  load(): Load;
  end(): Promise<void>;
}

const LOOK = "select started_at is null as waits from dispatch_policy.in_flight_jobs";

/** Of a database with policies. It has a connection of its own, so that it waits for nobody. */
export async function meterLoad(connectionString: string): Promise<LoadMeter> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const from = processorTimes();
  let [looks, admitted, notStarted] = [0, 0, 0];
  return {
    async look() {
      const { rows } = await client.query<{ waits: boolean }>(LOOK);
      looks += 1;
      admitted += rows.length;
      notStarted += rows.filter(({ waits }) => waits).length;
    },
    load() {
      const to = processorTimes();
      const busy = (to.busy - from.busy) / (to.all - from.all);
      return { busy, admitted: admitted / looks, notStarted: notStarted / looks };
    },
    end: () => client.end(),
  };
}

function processorTimes(): { readonly busy: number; readonly all: number } {
  const times = os.cpus().map((processor) => processor.times);
  const idle = times.reduce((sum, one) => sum + one.idle, 0);
  const all = times.reduce((sum, { user, nice, sys, irq, idle }) => sum + user + nice + sys + irq + idle, 0);
  return { busy: all - idle, all };
}
