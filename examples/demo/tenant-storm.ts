/** The storms of `--ui`: for some time, jobs of many tenants. */
import { setTimeout as delay } from "node:timers/promises";
import { addPolicyJobs, type Queryable } from "../../src/index.ts";
import { type DemoJob, JOBS } from "./jobs.ts";

const EVERY_MS = 200;
export const BATCHES_A_SECOND = 1000 / EVERY_MS;

export const MOST = { tenants: 2000, skew: 2, seconds: 600, batch: 200 } as const;

export interface Asked {
  readonly target: DemoJob;
  readonly tenants: number;
  readonly skew: number;
  readonly seconds: number;
  readonly batch: number;
}

/** One that runs, or has ended. */
export interface Storm {
  readonly asked: Asked;
  readonly added: number;
  /** Undefined once it has ended. */
  readonly secondsLeft: number | undefined;
  /** Why it ended before its time; undefined: it did not. */
  readonly ended: string | undefined;
}

/** What a form asks for, or what is wrong with it. */
export function readAsked(form: URLSearchParams): Asked | string {
  const name = form.get("target") ?? "";
  const target = jobNamed(name);
  if (!target) return unknownJob("target", name);
  const wrong: string[] = [];
  const number = (field: keyof typeof MOST, least: number, isWhole = true): number => {
    const text = form.get(field) ?? "";
    const value = Number(text);
    const isNumber = (isWhole ? /^\d+$/ : /^\d+(\.\d+)?$/).test(text);
    if (!isNumber || value < least || value > MOST[field])
      wrong.push(
        `${field} ${JSON.stringify(text)}: expected a ${isWhole ? "whole number" : "number"} from ${least} to ${MOST[field]}.`,
      );
    return value;
  };
  const asked = {
    target,
    tenants: number("tenants", 1),
    skew: number("skew", 0, false),
    seconds: number("seconds", 1),
    batch: number("batch", 1),
  };
  return wrong.length > 0 ? wrong.join(" ") : asked;
}

export function jobNamed(name: string): DemoJob | undefined {
  return JOBS.find(({ policy }) => policy.identifier === name);
}

export function unknownJob(field: string, name: string): string {
  const known = JOBS.map(({ policy }) => policy.identifier).join(", ");
  return `${field} ${JSON.stringify(name)}: expected one of ${known}.`;
}

/** Adds jobs of a target, each of a tenant by chance. */
export async function addSome(
  pool: Queryable,
  { policy, payload, spec }: DemoJob,
  count: number,
  shares: readonly number[],
): Promise<void> {
  const draw = () => `tenant-${1 + drawn(shares, Math.random())}`;
  await addPolicyJobs(
    pool,
    Array.from({ length: count }, () => ({ policy, payload: payload(draw()), ...spec })),
  );
}

/**
 * The tenants' shares, the greatest first: the k-th has 1 / k^skew of what the first has. Of 100 tenants the first has 1 % with
 * a skew of 0, 19 % with 1, and 61 % with 2.
 */
export function sharesOf(tenants: number, skew: number): readonly number[] {
  const weights = Array.from({ length: tenants }, (_, k) => 1 / (k + 1) ** skew);
  const all = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / all);
}

/** Whose turn it is, if `chance` is from 0 to 1. */
export function drawn(shares: readonly number[], chance: number): number {
  let left = chance;
  const found = shares.findIndex((share) => {
    left -= share;
    return left < 0;
  });
  return found === -1 ? shares.length - 1 : found; // the shares' sum may be a little less than 1
}

export interface Storms {
  /** The one that runs, else the last one. */
  last(): Storm | undefined;
  /** False: one runs already. Two would share the worker slots. */
  start(asked: Asked): boolean;
  /** Resolves once none adds jobs any more. */
  stop(): Promise<void>;
}

export function makeStorms(pool: Queryable): Storms {
  let asked: Asked | undefined;
  let [added, until] = [0, 0];
  let ended: string | undefined;
  let running: { readonly done: Promise<void>; readonly stop: AbortController } | undefined;

  async function blow(it: Asked, signal: AbortSignal): Promise<void> {
    const shares = sharesOf(it.tenants, it.skew);
    try {
      while (performance.now() < until) {
        await addSome(pool, it.target, it.batch, shares);
        added += it.batch;
        await delay(EVERY_MS, undefined, { signal });
      }
    } catch (error) {
      ended = (error as Error).name === "AbortError" ? "it was stopped" : (error as Error).message;
    }
    running = undefined;
  }

  return {
    last: () =>
      asked && {
        ...{ asked, added, ended },
        secondsLeft: running && Math.max(0, Math.ceil((until - performance.now()) / 1000)),
      },
    start(it) {
      if (running) return false;
      [asked, added, until, ended] = [it, 0, performance.now() + it.seconds * 1000, undefined];
      const stop = new AbortController();
      running = { done: blow(it, stop.signal), stop };
      return true;
    },
    async stop() {
      running?.stop.abort();
      await running?.done;
    },
  };
}
