// What the processes of a race have in common.
import pg from "pg";
import { concurrency, Engine, type EngineOptions } from "../../helpers/engine.ts";
import { random } from "../../helpers/random.ts";

export const MOST_IN_ALL = 20;
export const MOST_OF_A_PARTITION = 3;
const PARTITIONS = 50;

export const OPTIONS: EngineOptions = {
  gates: [concurrency(MOST_OF_A_PARTITION), concurrency(MOST_IN_ALL, { name: "all", scope: "policy" })],
};

/** What the parent tells every process. */
export interface Orders {
  readonly role: "ticker" | "enqueuer" | "worker" | "observer";
  /** Its place among those of its role. */
  readonly place: number;
  readonly url: string;
  /** Of its random choices. */
  readonly seed: number;
  /** The observer's socket. */
  readonly socket: string;
  /** How many jobs each enqueuer stages, or for how long. */
  readonly jobs: number;
  readonly seconds: number;
  /** Enqueuers add one job at a time, about as fast as the limits let them go. */
  readonly alone: boolean;
  /** The longest a job runs, in milliseconds. */
  readonly longestMs: number;
  /** The longest the second ticker rests between two passes, in milliseconds; the first does not, the third twice as long. */
  readonly longestPauseMs: number;
}

export const orders: Orders = JSON.parse(process.argv[2] ?? "{}");

export const chance = random(orders.seed);

/** Few partitions are hot, most are cold. */
export function randomPartition(): string {
  return `k${Math.floor(chance.unit() ** 1.5 * PARTITIONS)}`;
}

export function connect(): Engine {
  const pool = new pg.Pool({ connectionString: orders.url, max: 2 });
  return new Engine(orders.url, pool, OPTIONS);
}

let ended = false;
process.on("message", (message) => {
  if (message === "end") ended = true;
});
/** Whether the parent has called the race off. */
export const isOver = () => ended;

/** Runs `act` until the race is over; errors are the parent's to judge. */
export async function repeat(act: () => Promise<unknown>): Promise<void> {
  while (!isOver()) {
    await act().catch((error) => report({ failure: `${orders.role}: ${error.code ?? ""} ${error.message}` }));
  }
}

/** Waits until it is rung, or has been since the last wait. */
export function bell() {
  let rings = 0;
  let wake = () => {};
  return {
    ring(): void {
      rings++;
      wake();
    },
    async rung(atMostMs: number): Promise<void> {
      if (rings === 0) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, atMostMs);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
      }
      rings = 0;
    },
  };
}

export function report(news: Report): void {
  process.send?.(news);
}

export interface Report {
  readonly failure?: string;
  /** Staged ids of a transaction that committed. */
  readonly staged?: readonly string[];
  /** How many of them went at once. */
  readonly wentAtOnce?: number;
  /** An enqueuer has staged its jobs. */
  readonly done?: true;
  /** How many jobs a ticker has admitted, at the end. */
  readonly admitted?: number;
  /** How many arrivals its passes routed themselves. */
  readonly routedInPasses?: number;
  /** The observer's account, about ten times a second. */
  readonly seen?: Seen;
}

/** What an observer outside of the engine saw: jobs as their workers started and ended them. */
export interface Seen {
  readonly ended: readonly string[];
  readonly doubled: readonly string[];
  readonly mostInAll: number;
  readonly mostOfAPartition: number;
}
