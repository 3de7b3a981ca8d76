// npm run bench -- --ahead: how long a quiet tenant's job waits beside a loud tenant, for jobs of each length. The loud one
// has more to do than the workers get through. Also whether weights hold from the first starts on, and how long a quiet and
// a heavy tenant's jobs wait beside a crowd.
import { setTimeout as delay } from "node:timers/promises";
import { startChild } from "../harness/children.ts";
import { addInCalls, TASK, weightedPolicy } from "../harness/jobs.ts";
import { moment } from "../harness/moment.ts";
import { openSide, type Side } from "../harness/sides.ts";

export interface AheadSize {
  /** How long the jobs run, in milliseconds: each is a round of its own. */
  readonly lengths: readonly number[];
  readonly slots: number;
  /** Jobs of the loud tenant. */
  readonly waiting: number;
  /** At most so many; fewer of long jobs. */
  readonly samples: number;
  /** Starts over which weights are counted. */
  readonly starts: number;
  /** Tenants with a job each, beside which others come. */
  readonly crowd: number;
  /** How long the jobs of a crowd run, if not each of `lengths` is a round. */
  readonly crowdLengths: Partial<Record<Crowd, readonly number[]>>;
}

/** What a worker process saw since it was asked last. Times are in milliseconds. */
export interface Seen {
  readonly starts: Moment[];
  readonly ends: Moment[];
}

interface Moment {
  readonly tenant: string;
  readonly at: number;
}

export interface Waits {
  readonly ms: number;
  readonly pace: number;
  /** Starts in the second second, as a part of the pace later; not a number if jobs run for longer than a second. */
  readonly ramp: number;
  /** From adding a quiet tenant's job to its start, in milliseconds, in order. */
  readonly waits: readonly number[];
  /** The same, from when the next slot was free. */
  readonly beyond: readonly number[];
  /** The share of the tenant with weight 2, beside one of weight 1. */
  readonly share: number;
}

/** What the crowd is: tenants that had a job just now, fresh ones, or some whose jobs become due at one time. */
export const CROWDS = ["had a job", "fresh", "due at one time"] as const;
export type Crowd = (typeof CROWDS)[number];

/** From the time that a tenant's job is due to its start beside the crowd, in milliseconds, in order. */
export interface CrowdWaits {
  readonly ms: number;
  readonly who: Crowd;
  /** Of tenants that had nothing lately, if the others had something. */
  readonly quiet: readonly number[];
  /** Of tenants of weight 100. */
  readonly heavy: readonly number[];
  /** The same two, from when the next slot was free. */
  readonly quietBeyond: readonly number[];
  readonly heavyBeyond: readonly number[];
}

const LOOKS_EVERY_MS = 20;
const LEAST_WARM_UP_MS = 4000;
/** Samples of long jobs take about this long. */
const SAMPLING_MS = 10_000;
const LEAST_SAMPLES = 3;
/** If jobs run for longer, weights are counted with more slots, because so many starts would take minutes. */
const LONG_MS = 1000;
const SLOTS_OF_LONG = 5;

export async function measureAhead(ms: number, size: AheadSize): Promise<Waits> {
  const waits = await measureWaits(ms, size);
  return { ...waits, ms, share: await measureShare(ms, size) };
}

function samplesOf(ms: number, { samples }: AheadSize): number {
  return Math.min(samples, Math.max(LEAST_SAMPLES, Math.floor(SAMPLING_MS / ms)));
}

async function measureWaits(ms: number, size: AheadSize) {
  const { slots, waiting } = size;
  const { side, worker } = await open(slots, (side) => add(side, "loud", ms, waiting));
  const seen = collect(worker);
  await seen.until(({ starts }) => starts.length > 0);
  const began = moment();
  await delay(Math.max(LEAST_WARM_UP_MS, 1.5 * ms));
  await seen.look();
  const pace = (seen.all.starts.length / (moment() - began)) * 1000;
  const ramp = ms > LONG_MS ? Number.NaN : rampOf(seen.all.starts.map(({ at }) => at));
  const waits: number[] = [];
  const beyond: number[] = [];
  for (let n = 0; n < samplesOf(ms, size); n++) {
    await delay(((n * 7) % 10) * 30); // at different moments of a turn
    const added = moment();
    await add(side, `quiet ${n}`, ms, 1);
    const one = await waitOf(seen, `quiet ${n}`, added);
    waits.push(one.wait);
    beyond.push(one.beyond);
  }
  await worker.stop();
  await side.close();
  return { pace, ramp, waits: inOrder(waits), beyond: inOrder(beyond) };
}

/** Of a tenant's only job: how long it waited since this moment, and how long after the next slot was free. */
async function waitOf(seen: ReturnType<typeof collect>, tenant: string, since: number) {
  const startOf = ({ starts }: Seen) => starts.find((one) => one.tenant === tenant);
  await seen.until((all) => startOf(all) !== undefined);
  const started = startOf(seen.all)?.at as number;
  let freed = started;
  for (const { at } of seen.all.ends) if (at > since && at < freed) freed = at;
  return { wait: started - since, beyond: started - freed };
}

/** Of these starts: those between the first and the second second, as a part of what later ones are in a second. */
function rampOf(starts: readonly number[]): number {
  const [first, last] = [Math.min(...starts), Math.max(...starts)];
  const within = (from: number, to: number) => starts.filter((at) => at >= from && at < to).length;
  const later = (within(first + 2000, last) / (last - first - 2000)) * 1000;
  return within(first + 1000, first + 2000) / later;
}

export async function measureCrowd(ms: number, who: Crowd, size: AheadSize): Promise<CrowdWaits> {
  const { slots, crowd } = size;
  const samples = samplesOf(ms, size);
  const dueAt = who === "due at one time" ? new Date(Date.now() + 10_000 + crowd / 2) : undefined;
  const { side, worker } = await open(slots, async (side) => {
    const tenants = Array.from({ length: crowd }, (_, n) => `of many ${n}`);
    if (dueAt) tenants.push(...Array.from({ length: samples }, (_, n) => `heavy ${n}`));
    const specs = tenants.map((tenant) => ({ identifier: TASK, payload: { tenant, ms }, runAt: dueAt }));
    await addInCalls(side.utils, specs as never);
    while (
      (await side.pool.query("select dispatch_policy_internal._route($1, null, 10000) as n", [TASK])).rows[0]
        .n > 0
    );
    if (who === "had a job")
      await side.pool.query(`update dispatch_policy_internal.partitions
        set decayed_admits = 1, fair_key = 2, decayed_at = clock_timestamp()`);
  });
  if (dueAt && dueAt.getTime() < Date.now() + 1000) throw new Error("staging took until the jobs were due");
  const dueMoment = dueAt && moment() + dueAt.getTime() - Date.now();
  const seen = collect(worker);
  await seen.until(({ starts }) => starts.length >= Math.min(startsBefore(ms, slots), crowd / 2));
  const waits = { quiet: [] as number[], heavy: [] as number[] };
  const beyond = { quiet: [] as number[], heavy: [] as number[] };
  const kinds = who === "had a job" ? (["quiet", "heavy"] as const) : (["heavy"] as const);
  for (let n = 0; n < samples; n++) {
    for (const kind of kinds) {
      const added = dueMoment ?? moment();
      if (dueMoment === undefined) await add(side, `${kind} ${n}`, ms, 1);
      const one = await waitOf(seen, `${kind} ${n}`, added);
      waits[kind].push(one.wait);
      beyond[kind].push(one.beyond);
    }
  }
  await worker.stop();
  await side.close();
  return {
    ...{ ms, who, quiet: inOrder(waits.quiet), heavy: inOrder(waits.heavy) },
    ...{ quietBeyond: inOrder(beyond.quiet), heavyBeyond: inOrder(beyond.heavy) },
  };
}

/** How many jobs have started before the first sample: ten rounds of all slots, or a second one if that takes long. */
function startsBefore(ms: number, slots: number): number {
  return ms > LONG_MS ? slots + 1 : 10 * slots;
}

async function measureShare(ms: number, { slots, starts: count }: AheadSize): Promise<number> {
  const { side, worker } = await open(ms > LONG_MS ? SLOTS_OF_LONG * slots : slots, async (side) => {
    await add(side, "single", ms, 2 * count);
    await add(side, "double", ms, 2 * count);
  });
  const seen = collect(worker);
  await seen.until(({ starts }) => starts.length >= count);
  await worker.stop();
  await side.close();
  const first = seen.all.starts.slice(0, count);
  return first.filter(({ tenant }) => tenant === "double").length / first.length;
}

const inOrder = (all: number[]) => all.sort((a, b) => a - b);

async function open(slots: number, stage: (side: Side) => Promise<void>) {
  const side = await openSide("governed", { policy: weightedPolicy, autovacuum: true });
  await stage(side);
  await side.pool.query("vacuum analyze");
  const worker = startChild("seen.ts", { side: "governed", url: side.url, tuned: false, slots });
  return { side, worker };
}

function add({ utils }: Side, tenant: string, ms: number, count: number): Promise<void> {
  return addInCalls(utils, Array(count).fill({ identifier: TASK, payload: { tenant, ms } }));
}

function collect(worker: ReturnType<typeof startChild>) {
  const all: Seen = { starts: [], ends: [] };
  async function look(): Promise<void> {
    const { starts, ends } = await worker.ask<object, Seen>({});
    all.starts.push(...starts);
    all.ends.push(...ends);
  }
  async function until(isSo: (all: Seen) => boolean): Promise<void> {
    for (await look(); !isSo(all); await look()) await delay(LOOKS_EVERY_MS);
  }
  return { all, look, until };
}
