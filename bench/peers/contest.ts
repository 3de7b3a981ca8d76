import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { testDatabase } from "../../test/helpers/database.ts";
import type { PeerOrders, Question } from "../harness/children/peer.ts";
import { startChild } from "../harness/children.ts";
import { atEnd } from "../harness/closing.ts";
import type { Seen } from "./seen.ts";
import type { Job, Limit, System, World } from "./system.ts";

/** Autovacuum looks once a minute, which is as long as a case takes. */
const VACUUM_EVERY_MS = 10_000;

export interface Arena {
  readonly world: World;
  add(jobs: readonly Job[]): Promise<unknown>;
  /** After what was added first, and from then on now and then, all tables are vacuumed and analyzed. */
  settle(): Promise<void>;
  close(): Promise<void>;
}

/** A system's database, which is new, and who adds to it. */
export async function openArena(system: System, wanted: Omit<World, "url">): Promise<Arena> {
  const database = await testDatabase();
  const closing = [atEnd(database.drop)];
  const world = { ...wanted, url: database.url };
  const adder = await system.open(world);
  closing.unshift(atEnd(adder.stop));

  async function settle(): Promise<void> {
    await database.pool.query("vacuum analyze");
    await database.pool.query("checkpoint");
    closing.unshift(keepVacuumed(database.pool));
  }

  async function close(): Promise<void> {
    for (const close of closing) await close();
  }

  return { world, add: adder.add, settle, close };
}

function keepVacuumed(pool: pg.Pool): () => Promise<void> {
  const over = new AbortController();
  const vacuuming = (async () => {
    while (!over.signal.aborted) {
      await delay(VACUUM_EVERY_MS, undefined, { signal: over.signal }).catch(() => {});
      if (!over.signal.aborted) await pool.query("vacuum analyze");
    }
  })();
  return atEnd(async () => {
    over.abort();
    await vacuuming;
  });
}

export interface Contest {
  add(jobs: readonly Job[]): Promise<unknown>;
  startWorker(): Promise<void>;
  wait(until: Omit<Question & { ask: "wait" }, "ask">): Promise<void>;
  seen(): Promise<Seen[]>;
  close(): Promise<void>;
}

/** A system on a database of its own, its worker in a process of its own. */
export async function openContest(
  system: System,
  { keys, limit, workMs }: { keys: readonly string[]; limit: Limit; workMs: number },
): Promise<Contest> {
  const { world, add, settle, close } = await openArena(system, { keys, limit });
  const orders: PeerOrders = { system: system.name, world, workMs };
  const child = startChild("peer.ts", orders);
  return {
    add,
    async startWorker() {
      await settle();
      await child.ask<Question, object>({ ask: "start" });
    },
    wait: async (until) => void (await child.ask<Question, object>({ ask: "wait", ...until })),
    seen: () => child.ask<Question, Seen[]>({ ask: "seen" }),
    async close() {
      await child.stop();
      await close();
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
