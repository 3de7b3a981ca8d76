import type { Noted } from "./children/consumer.ts";
import type { Load } from "./children/producer.ts";
import { startChild } from "./children.ts";
import { openPolicy } from "./jobs.ts";
import { openSide, type SideName } from "./sides.ts";

/** What was heard of a stretch of load. */
export interface Heard extends Pick<Noted, "p50" | "p99" | "memory"> {
  /** Jobs a second, as they were added. */
  readonly rate: number;
  /** The part of them that had started by the time all were added. */
  readonly kept: number;
}

/** A database, a process that adds and one that runs. */
export async function openLoad(name: SideName) {
  const side = await openSide(name, { policy: openPolicy, autovacuum: true });
  const consumer = startChild("consumer.ts", { side: name, url: side.url, tuned: false });
  const producer = startChild("producer.ts", { side: name, url: side.url });
  let waiting = 0;
  const note = async () => {
    const noted = await consumer.ask<object, Noted>({});
    waiting -= noted.started;
    return noted;
  };
  return {
    pool: side.pool,
    note,
    async run(load: Load): Promise<Heard> {
      const { added } = await producer.ask<Load, { added: number }>(load);
      waiting += added;
      const { started, p50, p99, memory } = await note();
      return { rate: load.rate, kept: started / added, p50, p99, memory };
    },
    async drained(): Promise<void> {
      while (waiting > 0) await note();
    },
    async close(): Promise<void> {
      await producer.stop();
      await consumer.stop();
      await side.close();
    },
  };
}
