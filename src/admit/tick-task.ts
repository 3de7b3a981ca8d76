import type { Task, WithPgClient } from "graphile-worker";
import { checkOptions, show } from "../checks/options.ts";
import { inTime } from "../db/deadline.ts";
import { isUnknownPolicy } from "../db/sqlstates.ts";
import { durationMs, isDuration } from "../duration.ts";
import { ArgumentError, UnknownPolicyError } from "../errors.ts";
import { type Logger, ours } from "../log.ts";
import { TICK_TASK } from "../policy/job.ts";
import type { Settings } from "../settings.ts";
import { type RunLoopsContext, runLoops } from "./run-loops.ts";
import { sleep } from "./sleeper.ts";
import { type Pass, type TickContext, type TickRequest, tickOnce } from "./tick.ts";

/** A task that goes on looks this often whether others lead by now. */
const LOOK_FOR_LEADERS_MS = 1000;

export interface TickTaskContext extends Omit<RunLoopsContext, "withPgClient" | "logger"> {
  readonly tickMaxDurationMs: number;
  /** Lets a worker pool lead for a while. Undefined: it cannot, or leads already. */
  readonly leadOf?: (poolId: string | null) => LeadFor | undefined;
  /** Called after the ticks: a sweep. */
  readonly afterwards?: (withPgClient: WithPgClient, logger: Logger) => Promise<void>;
}

interface TickPayload {
  /**
   * The only policy to tick.
   * @default every policy in the database
   */
  policy?: string | undefined;
  /**
   * The only shard to tick.
   * @default every shard
   */
  shard?: string | undefined;
  /**
   * If no loop leads, the task runs tick loops for this duration, which adds and releases wake. Its worker then needs a
   * concurrency of at least 2.
   * @default the task ends when nothing more can be admitted
   */
  for?: string | undefined;
}

/**
 * Ticks until nothing more can be admitted, then returns, so that it does not occupy a worker for long.
 *
 * Payload `{ policy?, shard?, for? }`. With `for`, a duration, and without a live leader, it runs tick loops for this time.
 * Its worker pool must then run at least two jobs at once.
 */
export function makeTickTask(context: TickTaskContext): Task {
  return async (payload, helpers) => {
    const options = readPayload(payload);
    const started = performance.now();
    const lasts = options.for === undefined ? 0 : durationMs(options.for as never);
    const { withPgClient } = helpers;
    const logger = ours(helpers.logger);
    const { engine } = context;
    const ticks = { ...context, logger, withPgClient: inTime(engine, withPgClient) };
    const targets = await targetsOf(ticks, options);
    if (isOfCrontab(payload))
      await ticks.withPgClient((client) => engine.crontabTicked(client, namesOf(targets)));
    const { abortSignal } = helpers;
    const { shard } = options;
    const unled = lasts > 0 ? targets.filter(({ bounded }) => !bounded) : [];
    const others = targets.filter((target) => !unled.includes(target));
    await tickAll(ticks, others, started + context.tickMaxDurationMs, abortSignal);
    if (unled.length > 0) {
      const over = new AbortController();
      const signal = AbortSignal.any([over.signal, ...(abortSignal ? [abortSignal] : [])]);
      const lead = context.leadOf?.(helpers.job.locked_by) ?? loopFor(ticks, options, unled, withPgClient);
      const leading = lead(
        { policies: namesOf(unled), shards: shard === undefined ? null : [shard] },
        signal,
      );
      await Promise.race([leading, sleep(started + lasts - performance.now(), signal)]);
      over.abort();
      await leading;
    }
    await context.afterwards?.(ticks.withPgClient, logger);
  };
}

/** Leads what nobody leads of these, until the signal aborts or others do. */
export type LeadFor = (loops: NonNullable<Settings["loop"]>, signal: AbortSignal) => Promise<void>;

const namesOf = (targets: readonly Target[]): string[] => [...new Set(targets.map(({ policy }) => policy))];

type Target = Omit<TickRequest, "now">;

/** Ticks every target until none has more. */
async function tickAll(
  context: TickContext & { minTickIntervalMs: number },
  targets: readonly Target[],
  until: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (const target of targets) {
    await tickTarget(context, target, until, signal).catch((error) => {
      if (!isUnknownPolicy(error)) throw error; // it was removed meanwhile
    });
  }
}

/** The same of one target. */
async function tickTarget(
  context: TickContext & { minTickIntervalMs: number },
  target: Target,
  until: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  let pass: Pass;
  let idle = 0;
  do {
    pass = await tickOnce(context, { ...target, now: null });
    idle = pass.progress ? 0 : idle + 1;
    if (pass.more) await sleep(context.minTickIntervalMs * idle, signal);
  } while (pass.more && idle < 10 && performance.now() < until && !signal?.aborted);
}

/** For a host without heartbeats: runs loops without leases, until the signal aborts or others lead. */
function loopFor(
  context: RunLoopsContext,
  options: TickPayload,
  targets: readonly Target[],
  withPgClient: WithPgClient,
): LeadFor {
  return async (_, signal) => {
    const over = new AbortController();
    const loops = runLoops(context, targets, { withPgClient }, AbortSignal.any([signal, over.signal]));
    try {
      do await sleep(LOOK_FOR_LEADERS_MS, signal);
      while (!signal.aborted && (await targetsOf(context, options)).some(({ bounded }) => !bounded));
    } finally {
      over.abort();
      await loops;
    }
  };
}

/**
 * What to tick, and where the ahead bound applies. A shard's loop admits more when the workers have caught up. Jobs of a
 * shard without one would wait for the next minute, so there the gates alone decide.
 *
 * Each shard of each policy is judged on its own: one that nobody leads must not take the bound from the others.
 */
async function targetsOf(
  { engine, withPgClient }: TickContext,
  { policy, shard: only }: TickPayload,
): Promise<Target[]> {
  const shard = only ?? null;
  const known = await withPgClient(engine.policyNames);
  if (policy !== undefined && !known.includes(policy)) throw new UnknownPolicyError(policy, known);
  const policies = policy === undefined ? known : [policy];
  const leases = await withPgClient((client) => engine.leases(client, policies));
  return policies.flatMap((name): Target[] => {
    const led = leases.filter((one) => one.policy === name && (shard === null || one.shard === shard));
    const unled = led.filter((one) => !((one.expires_in_ms ?? 0) > 0));
    if (unled.length === led.length) return [{ policy: name, shard, bounded: false }];
    const each = unled.map((one) => ({ policy: name, shard: one.shard, bounded: false }));
    return [{ policy: name, shard, bounded: true }, ...each];
  });
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

function isOfCrontab(payload: unknown): boolean {
  return typeof payload === "object" && payload !== null && "_cron" in payload;
}

/** Graphile Worker's cron adds `_cron` to the payload. */
function stripCron(options: unknown): unknown {
  if (typeof options !== "object" || options === null) return options;
  const { _cron, ...rest } = options as Record<string, unknown>;
  return rest;
}
