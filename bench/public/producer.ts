// When jobs are added, and how many.
import { readFileSync } from "node:fs";
import readline from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import type { ProducerSettings } from "./settings.ts";

/** How long a producer waits that could not add jobs. */
const FAILED_REST_MS = 200;
/** How long it waits while there is nothing to add. */
const IDLE_REST_MS = 50;

export interface Producer {
  readonly settings: ProducerSettings;
  /** Adds so many jobs. */
  add(count: number): Promise<unknown>;
  depth(): Promise<number>;
  readonly signal: AbortSignal;
}

/** Adds jobs until the signal. */
export async function produce(producer: Producer): Promise<void> {
  const { mode, pacing } = producer.settings;
  if (mode === "depth-target") await toDepth(producer);
  else if (pacing === "harness") await asTold(producer);
  else await byRate(producer);
}

/** The rate of the moment, by the file if there is one. */
export function rateNow({ rate, rateFile }: ProducerSettings): number {
  if (rateFile === undefined) return rate;
  const said = Number(readFileSync(rateFile, "utf8"));
  if (Number.isFinite(said) && said >= 0) return said;
  throw new Error(`PRODUCER_RATE_CONTROL_FILE: ${rateFile} must contain a number of jobs a second`);
}

/** Each line `ENQUEUE n` of the harness is one call of n jobs. */
async function asTold(producer: Producer): Promise<void> {
  const { signal } = producer;
  const lines = readline.createInterface({ input: process.stdin, signal });
  for await (const line of lines) {
    const told = /^ENQUEUE (\d+)$/.exec(line.trim());
    if (!told) console.error(`# not a line of the harness: ${line}`);
    else await inBatches(producer, Number(told[1]));
    if (signal.aborted) return;
  }
}

/** Credits time that has passed, not turns of the loop: a slow call would otherwise lower the rate. */
async function byRate(producer: Producer): Promise<void> {
  const { settings, signal } = producer;
  let credit = 0;
  let credited = performance.now();
  while (!signal.aborted) {
    await rest(settings.batchMs, signal);
    const now = performance.now();
    credit += (rateNow(settings) * (now - credited)) / 1000;
    credited = now;
    const whole = Math.floor(credit);
    credit -= whole;
    await inBatches(producer, whole);
  }
}

async function toDepth({ settings, add, depth, signal }: Producer): Promise<void> {
  const { targetDepth, batchMax } = settings;
  while (!signal.aborted) {
    await untilDone("the depth could not be filled", signal, async () => {
      const missing = targetDepth - (await depth());
      if (missing <= 0) await rest(IDLE_REST_MS, signal);
      else await add(Math.min(missing, batchMax));
    });
  }
}

async function inBatches({ settings: { batchMax }, add, signal }: Producer, count: number): Promise<void> {
  for (let left = count; left > 0; left -= batchMax) {
    const some = Math.min(left, batchMax);
    await untilDone(`${some} jobs could not be added`, signal, () => add(some));
  }
}

/** The database may be away, for the benchmark restarts it: then this goes on when it is back. */
async function untilDone(what: string, signal: AbortSignal, act: () => Promise<unknown>): Promise<void> {
  while (!signal.aborted) {
    try {
      await act();
      return;
    } catch (error) {
      console.error(`# ${what}, and it is tried again: ${(error as Error).message}`);
      await rest(FAILED_REST_MS, signal);
    }
  }
}

/** Ends early at the signal, which is no error. */
export async function rest(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch((error: Error) => {
    if (error.name !== "AbortError") throw error;
  });
}
