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
  readonly samples: number;
  /** Starts over which weights are counted. */
  readonly starts: number;
  /** Tenants with a job each that had their share, beside which others come. */
  readonly crowd: number;
}

/** What a worker process saw since it was asked last. Times are in milliseconds. */
export interface Seen {
  readonly starts: { readonly tenant: string; readonly at: number }[];
  readonly ends: number[];
}

export interface Waits {
  readonly ms: number;
  readonly pace: number;
  /** Starts in the second second, as a part of the pace later. */
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
}

const LOOKS_EVERY_MS = 20;
const LEAST_WARM_UP_MS = 4000;

export async function measureAhead(ms: number, size: AheadSize): Promise<Waits> {
  const waits = await measureWaits(ms, size);
  return { ...waits, ms, share: await measureShare(ms, size) };
}

async function measureWaits(ms: number, { slots, waiting, samples }: AheadSize) {
  const { side, worker } = await open(slots, (side) => add(side, "loud", ms, waiting));
  const seen = collect(worker);
  await seen.until(({ starts }) => starts.length > 0);
  const began = moment();
  await delay(Math.max(LEAST_WARM_UP_MS, 1.5 * ms));
  await seen.look();
  const pace = (seen.all.starts.length / (moment() - began)) * 1000;
  const ramp = rampOf(seen.all.starts.map(({ at }) => at));
  const waits: number[] = [];
  const beyond: number[] = [];
  for (let n = 0; n < samples; n++) {
    await delay(((n * 7) % 10) * 30); // at different moments of a turn
    const added = moment();
    await add(side, `quiet ${n}`, ms, 1);
    const startOf = ({ starts }: Seen) => starts.find(({ tenant }) => tenant === `quiet ${n}`);
    await seen.until((all) => startOf(all) !== undefined);
    const started = startOf(seen.all)?.at as number;
    const freed = Math.min(started, ...seen.all.ends.filter((end) => end > added));
    waits.push(started - added);
    beyond.push(started - freed);
  }
  await worker.stop();
  await side.close();
  return { pace, ramp, waits: inOrder(waits), beyond: inOrder(beyond) };
}

/** Of these starts: those between the first and the second second, as a part of what later ones are in a second. */
function rampOf(starts: readonly number[]): number {
  const [first, last] = [Math.min(...starts), Math.max(...starts)];
  const within = (from: number, to: number) => starts.filter((at) => at >= from && at < to).length;
  const later = (within(first + 2000, last) / (last - first - 2000)) * 1000;
  return within(first + 1000, first + 2000) / later;
}

export async function measureCrowd(ms: number, who: Crowd, size: AheadSize): Promise<CrowdWaits> {
  const { slots, crowd, samples } = size;
  const dueAt = who === "due at one time" ? new Date(Date.now() + 5000 + crowd) : undefined;
  const { side, worker } = await open(slots, async (side) => {
    const tenants = Array.from({ length: crowd }, (_, n) => `of many ${n}`);
    if (dueAt) tenants.push(...Array.from({ length: samples }, (_, n) => `heavy ${n}`));
    const specs = tenants.map((tenant) => ({ identifier: TASK, payload: { tenant, ms }, runAt: dueAt }));
    await addInCalls(side.utils, specs as never);
    while (
      (await side.pool.query("select dispatch_policy._route($1, null, 10000, true) as n", [TASK])).rows[0].n >
      0
    );
    if (who === "had a job")
      await side.pool.query(`update dispatch_policy._private_partitions
        set decayed_admits = 1, fair_key = 2, decayed_at = clock_timestamp()`);
  });
  if (dueAt && dueAt.getTime() < Date.now() + 1000) throw new Error("staging took until the jobs were due");
  const dueMoment = dueAt && moment() + dueAt.getTime() - Date.now();
  const seen = collect(worker);
  await seen.until(({ starts }) => starts.length >= Math.min(10 * slots, crowd / 2));
  const waits: { quiet: number[]; heavy: number[] } = { quiet: [], heavy: [] };
  const kinds = who === "had a job" ? (["quiet", "heavy"] as const) : (["heavy"] as const);
  for (let n = 0; n < samples; n++) {
    for (const kind of kinds) {
      const added = dueMoment ?? moment();
      if (dueMoment === undefined) await add(side, `${kind} ${n}`, ms, 1);
      const startOf = ({ starts }: Seen) => starts.find(({ tenant }) => tenant === `${kind} ${n}`);
      await seen.until((all) => startOf(all) !== undefined);
      waits[kind].push((startOf(seen.all)?.at as number) - added);
    }
  }
  await worker.stop();
  await side.close();
  return { ms, who, quiet: inOrder(waits.quiet), heavy: inOrder(waits.heavy) };
}

async function measureShare(ms: number, { slots, starts: count }: AheadSize): Promise<number> {
  const { side, worker } = await open(slots, async (side) => {
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
