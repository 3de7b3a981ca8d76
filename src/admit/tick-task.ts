import { setTimeout as delay } from "node:timers/promises";
import type { Task, WithPgClient } from "graphile-worker";
import { checkOptions, show } from "../checks/options.ts";
import { inTime } from "../db/deadline.ts";
import { durationMs, isDuration } from "../duration.ts";
import { ArgumentError } from "../errors.ts";
import { type Pass, type TickContext, tickOnce } from "./tick.ts";

/** The task the crontab starts every minute: the tick that no crash can forget. */
export const TICK_TASK = "dispatch_policy_tick";

export interface TickTaskContext extends Omit<TickContext, "withPgClient"> {
  readonly tickMaxDurationMs: number;
  readonly minTickIntervalMs: number;
  /** Called after the ticks, for repairs. */
  readonly afterwards?: (withPgClient: WithPgClient) => Promise<void>;
}

interface TickPayload {
  policy?: string;
  shard?: string;
  for?: string;
}

/**
 * Ticks until nothing more can be admitted, then returns: it must not sit in a worker's slot. Payload `{ policy?,
 * shard?, for? }`: with `for` (a duration) and no live leader it goes on until then, sleeping in between; such a worker
 * needs a concurrency of at least 2.
 */
export function makeTickTask(context: TickTaskContext): Task {
  return async (payload, helpers) => {
    const options = readPayload(payload);
    const started = performance.now();
    const lasts = options.for === undefined ? 0 : durationMs(options.for as never);
    const ticks = { ...context, withPgClient: inTime(context.engine, helpers.withPgClient) };
    // a loop comes back when workers have caught up; where none leads, what is not admitted now waits a minute
    const bounded = lasts > 0 || (await isLed(ticks, options));
    do {
      const nextInMs = await tickAll(
        ticks,
        { ...options, bounded },
        started + Math.max(context.tickMaxDurationMs, lasts),
        helpers.abortSignal,
      );
      const left = started + lasts - performance.now();
      if (left <= 0 || helpers.abortSignal?.aborted || (await isLed(ticks, options))) break;
      await sleep(Math.min(nextInMs ?? 1000, left, 1000), helpers.abortSignal);
    } while (performance.now() - started < lasts);
    await context.afterwards?.(ticks.withPgClient);
  };
}

/** Ticks every policy asked for until none has more; returns when something may be admitted next. */
async function tickAll(
  context: TickContext & { minTickIntervalMs: number },
  { policy, shard, bounded }: TickPayload & { bounded: boolean },
  until: number,
  signal: AbortSignal | undefined,
): Promise<number | null> {
  const policies = policy === undefined ? await context.withPgClient(context.engine.policyNames) : [policy];
  let nextInMs: number | null = null;
  for (const name of policies) {
    let pass: Pass;
    let idle = 0;
    do {
      pass = await tickOnce(context, { policy: name, shard: shard ?? null, now: null, bounded });
      idle = pass.progress ? 0 : idle + 1;
      if (pass.more) await sleep(context.minTickIntervalMs * idle, signal);
    } while (pass.more && idle < 10 && performance.now() < until && !signal?.aborted);
    if (pass.nextInMs !== null) nextInMs = Math.min(nextInMs ?? pass.nextInMs, Math.max(pass.nextInMs, 0));
  }
  return nextInMs;
}

async function isLed({ engine, withPgClient }: TickContext, { policy }: TickPayload): Promise<boolean> {
  const policies = policy === undefined ? await withPgClient(engine.policyNames) : [policy];
  const leases = await withPgClient((client) => engine.leases(client, policies));
  return leases.length > 0 && leases.every((lease) => (lease.expires_in_ms ?? 0) > 0);
}

function readPayload(payload: unknown): TickPayload {
  const options = payload ?? {};
  checkOptions(TICK_TASK, stripCron(options), ["policy", "shard", "for"]);
  const { policy, shard, for: lasts } = options as Record<string, unknown>;
  for (const [key, value] of Object.entries({ policy, shard })) {
    if (value !== undefined && typeof value !== "string") {
      throw new ArgumentError(`${TICK_TASK}: ${key} must be a string, got ${show(value)}`);
    }
  }
  if (lasts !== undefined && !isDuration(lasts)) {
    throw new ArgumentError(`${TICK_TASK}: for must be a duration such as "30 seconds", got ${show(lasts)}`);
  }
  return options as TickPayload;
}

/** Graphile Worker's cron adds `_cron` to the payload. */
function stripCron(options: unknown): unknown {
  if (typeof options !== "object" || options === null) return options;
  const { _cron, ...rest } = options as Record<string, unknown>;
  return rest;
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return delay(ms, undefined, { signal }).catch(() => {}); // aborted: the caller looks
}
