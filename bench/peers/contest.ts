import { setTimeout as delay } from "node:timers/promises";
import { testDatabase } from "../../test/helpers/database.ts";
import type { PeerOrders, Question } from "../children/peer.ts";
import { startChild } from "../children.ts";
import { atEnd } from "../closing.ts";
import type { Seen } from "./seen.ts";
import type { Job, Limit, System } from "./system.ts";

/** Autovacuum looks once a minute, which is as long as a case takes. */
const VACUUM_EVERY_MS = 10_000;

export interface Contest {
  add(jobs: readonly Job[]): Promise<unknown>;
  startWorker(): Promise<void>;
  wait(until: Omit<Question & { ask: "wait" }, "ask">): Promise<void>;
  seen(): Promise<Seen[]>;
  close(): Promise<void>;
}

/** A system on a database of its own that is new, its worker in a process of its own. */
export async function openContest(
  system: System,
  { keys, limit, workMs }: { keys: readonly string[]; limit: Limit; workMs: number },
): Promise<Contest> {
  const database = await testDatabase();
  const closing = [atEnd(database.drop)];
  const world = { url: database.url, keys, limit };
  const adder = await system.open(world);
  closing.unshift(atEnd(adder.stop));
  const orders: PeerOrders = { system: system.name, world, workMs };
  const child = startChild("peer.ts", orders);
  closing.unshift(child.stop);

  async function startWorker(): Promise<void> {
    await database.pool.query("vacuum analyze");
    await database.pool.query("checkpoint");
    await child.ask<Question, object>({ ask: "start" });
    closing.unshift(keepVacuumed());
  }

  function keepVacuumed(): () => Promise<void> {
    const over = new AbortController();
    const vacuuming = (async () => {
      while (!over.signal.aborted) {
        await delay(VACUUM_EVERY_MS, undefined, { signal: over.signal }).catch(() => {});
        if (!over.signal.aborted) await database.pool.query("vacuum analyze");
      }
    })();
    return atEnd(async () => {
      over.abort();
      await vacuuming;
    });
  }

  return {
    add: adder.add,
    startWorker,
    wait: async (until) => void (await child.ask<Question, object>({ ask: "wait", ...until })),
    seen: () => child.ask<Question, Seen[]>({ ask: "seen" }),
    async close() {
      for (const close of closing) await close();
    },
  };
}

/** One key's after the other's: in the order they were added, all that run at once would be of one key. */
export function jobsOf(keys: readonly string[], perKey: number): Job[] {
  return keys.flatMap((key) => Array.from({ length: perKey }, (_, id) => ({ key, id })));
}

export function keysOf(count: number): string[] {
  return Array.from({ length: count }, (_, place) => `tenant-${place}`);
}
