// Starts the processes of a race, waits until every job ran or nothing moves any more, and judges.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Engine } from "../../helpers/engine.ts";
import { type Random, random } from "../../helpers/random.ts";
import { MOST_IN_ALL, MOST_OF_A_PARTITION, type Orders, type Report } from "./world.ts";

const PROCESSES = { worker: 2, ticker: 4, enqueuer: 4 } as const;
const STALLED_AFTER_MS = 10_000;
/** A race for pace has short jobs, RACE_LONGEST_MS, and leaves most passes to the first ticker, RACE_LONGEST_PAUSE_MS. */
const LONGEST_MS = Number(process.env.RACE_LONGEST_MS ?? 20);
const LONGEST_PAUSE_MS = Number(process.env.RACE_LONGEST_PAUSE_MS ?? 20);
/** So some twelve jobs run at once where 100 a second are added. */
const LONGEST_ALONE_MS = 250;
/** Eleven processes start at once. */
const STARTED_WITHIN_MS = 40_000;

const UNBLOCK = "select unblocked from dispatch_policy_internal._sweep_partitions(clock_timestamp())";

export interface Course {
  /** Jobs to stage, or 0: for `seconds`. */
  readonly jobs: number;
  readonly seconds: number;
  /** Of the processes' random choices. */
  readonly seed: number;
  /** Enqueuers add one job at a time. Default: many, in transactions. */
  readonly alone?: boolean;
}

export interface Outcome {
  /** What went wrong; empty: nothing. */
  readonly problems: readonly string[];
  readonly jobs: number;
  readonly seconds: number;
  readonly jobsPerSecond: number;
  readonly mostInAll: number;
  readonly mostOfAPartition: number;
  /** How many jobs each ticker admitted. */
  readonly admittedBy: readonly number[];
  /** How many went in the call that added them. */
  readonly wentAtOnce: number;
  /** How many arrivals passes routed in their own transaction. */
  readonly routedInPasses: number;
}

export async function race(engine: Engine, course: Course): Promise<Outcome> {
  const folder = await mkdtemp(path.join(os.tmpdir(), "race-"));
  const books = new Books();
  const fleet = new Fleet(engine.url, path.join(folder, "observer"), course, books);
  try {
    await fleet.start();
    await untilDoneOrStalled(engine, books, course.seconds > 0 ? 1000 : 100);
  } finally {
    await fleet.end();
    await rm(folder, { recursive: true, force: true });
  }
  const seconds = (books.lastEndAt - books.firstStagedAt) / 1000;
  if (books.stalledWith === 0) await checkLeftovers(engine, books);
  const { mostInAll, mostOfAPartition, admittedBy, wentAtOnce, routedInPasses } = books;
  const jobs = books.ended.size;
  const jobsPerSecond = Math.round(jobs / seconds);
  return {
    problems: books.problems(),
    jobs,
    seconds,
    jobsPerSecond,
    mostInAll,
    mostOfAPartition,
    admittedBy,
    wentAtOnce,
    routedInPasses,
  };
}

/** What the processes reported. */
class Books {
  readonly staged = new Set<string>();
  readonly ended = new Set<string>();
  readonly failures = new Map<string, number>();
  readonly admittedBy: number[] = [];
  doubled = 0;
  wentAtOnce = 0;
  routedInPasses = 0;
  enqueuersDone = 0;
  mostInAll = 0;
  mostOfAPartition = 0;
  firstStagedAt = Number.POSITIVE_INFINITY;
  lastEndAt = Date.now() + STARTED_WITHIN_MS;
  stalledWith = 0;

  add({ failure, staged, wentAtOnce, routedInPasses, done, admitted, seen }: Report): void {
    this.wentAtOnce += wentAtOnce ?? 0;
    this.routedInPasses += routedInPasses ?? 0;
    if (failure !== undefined) this.fail(failure);
    if (admitted !== undefined) this.admittedBy.push(admitted);
    if (done) this.enqueuersDone++;
    for (const id of staged ?? []) this.staged.add(id);
    if (staged) this.firstStagedAt = Math.min(this.firstStagedAt, Date.now());
    if (seen === undefined) return;
    for (const id of seen.ended) this.ended.add(id);
    if (seen.ended.length > 0) this.lastEndAt = Date.now();
    this.doubled += seen.doubled.length;
    this.mostInAll = seen.mostInAll;
    this.mostOfAPartition = seen.mostOfAPartition;
  }

  fail(failure: string): void {
    this.failures.set(failure, (this.failures.get(failure) ?? 0) + 1);
  }

  problems(): string[] {
    const unasked = [...this.ended].filter((id) => !this.staged.has(id)).length;
    const found = [
      this.mostInAll > MOST_IN_ALL && `overrun: ${this.mostInAll} at once, ${MOST_IN_ALL} allowed`,
      this.mostOfAPartition > MOST_OF_A_PARTITION &&
        `overrun: ${this.mostOfAPartition} of a partition at once, ${MOST_OF_A_PARTITION} allowed`,
      this.stalledWith > 0 && `stalled: ${this.stalledWith} jobs never ran`,
      this.doubled > 0 && `doubled: ${this.doubled} jobs started twice`,
      unasked > 0 && `unasked: ${unasked} jobs ran whose staging was rolled back`,
      ...[...this.failures].map(([failure, times]) => `failed: ${times} × ${failure}`),
    ];
    return found.filter((problem) => problem !== false);
  }
}

class Fleet {
  readonly #children: ChildProcess[] = [];
  readonly #orders: Omit<Orders, "role" | "place" | "seed">;
  readonly #random: Random;
  readonly #books: Books;

  constructor(url: string, socket: string, { jobs, seconds, seed, alone = false }: Course, books: Books) {
    this.#random = random(seed);
    this.#orders = {
      url,
      socket,
      jobs: Math.ceil(jobs / PROCESSES.enqueuer),
      seconds,
      alone,
      longestMs: alone ? LONGEST_ALONE_MS : LONGEST_MS,
      longestPauseMs: LONGEST_PAUSE_MS,
    };
    this.#books = books;
  }

  async start(): Promise<void> {
    await once(this.#fork("observer", 0), "message");
    for (const [role, count] of Object.entries(PROCESSES)) {
      for (let place = 0; place < count; place++) this.#fork(role as Orders["role"], place);
    }
  }

  async end(): Promise<void> {
    // flushes first: a job that ended is released
    await delay(300);
    await Promise.all(this.#children.map(endOf));
  }

  #fork(role: Orders["role"], place: number): ChildProcess {
    const orders: Orders = { ...this.#orders, role, place, seed: this.#random.below(2 ** 31) };
    const child = fork(new URL(`${role}.ts`, import.meta.url), [JSON.stringify(orders)], { execArgv: [] });
    child.on("message", (report) => this.#books.add(report as Report));
    child.on("exit", (code) => code && this.#books.fail(`${role} exited with ${code}`));
    this.#children.push(child);
    return child;
  }
}

async function endOf(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  if (child.connected) child.send("end");
  const late = setTimeout(() => child.kill("SIGKILL"), 5000);
  await exit;
  clearTimeout(late);
}

/** A sweep looks at every partition, dead rows and all: in a long race not as often. */
async function untilDoneOrStalled(engine: Engine, books: Books, sweepsEveryMs: number): Promise<void> {
  for (;;) {
    // a wake-up that was lost is often made up for by a later one; a sweep finds it before
    if ((await engine.number(UNBLOCK)) > 0) books.fail("a sweep had to wake a partition");
    const left = books.staged.size - books.ended.size;
    if (books.enqueuersDone === PROCESSES.enqueuer && left === 0) return;
    if (Date.now() - books.lastEndAt > STALLED_AFTER_MS) {
      books.stalledWith = Math.max(left, 1);
      return;
    }
    await delay(sweepsEveryMs);
  }
}

async function checkLeftovers(engine: Engine, books: Books): Promise<void> {
  for (const [what, count] of Object.entries(await engine.leftovers())) {
    if (count !== 0) books.fail(`${count} left: ${what}`);
  }
}
