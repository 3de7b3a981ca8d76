// Knows nothing of the engine: judges by what tasks say when they start and end, by what enqueuers were told, and by what
// the conductor did to each process.
import type { Repaired } from "../../src/index.ts";
import { LimitsInForce, type LimitsLog } from "./limits.ts";
import type { Execution } from "./messages.ts";
import { type Charge, excess, type Stretch } from "./rates.ts";
import {
  DEFINITIONS,
  LIMITED,
  regionOf,
  SHORT_STOP_MS,
  STEP_MS,
  STEPPED_PASS_MS,
  type TaskName,
  THROTTLED_STEP_MS,
  TICK_WITHIN_MS,
  TOGETHER,
} from "./world.ts";

/**
 * A job that ended well runs again when its process dies before it could tell the database. While the process lives this
 * does not take long, whatever happens to its connections: where the server is starting, Graphile Worker waits three
 * seconds before it tells it again, and half as long again each time; so much is four times.
 */
const COMPLETED_WITHIN_MS = 25_000;
/** A sweep may find these after a crash. Anything else it repairs was lost by the engine. */
const SWEPT_BY_DESIGN = new Set(["pools", "unlocked", "jobs"]);

/**
 * An admission's time is the beginning of its transaction. A ticker may be stopped between that and its tick, and its tick
 * may wait for locks until it finds the policy switched off.
 */
const BEGAN_BEFORE_MS = SHORT_STOP_MS + TICK_WITHIN_MS + 1000;
/** A second attempt tells when its pass had its locks, for which a pass waits two seconds at most. It read the policy before. */
const PASS_MS = 2500;
/** A fetch may see a job that was committed a little after the time at which the fetch began. */
const FETCH_MS = 100;

/** The least that a definition gives each worker pool. */
const LEAST_SHARE = Math.min(...Object.values(DEFINITIONS).map(({ share }) => share));

/** A process, as far as it matters for what ran in it. */
export interface Suspect {
  /** When it was killed, or ended by itself. */
  readonly diedAt: number | undefined;
  /** Since when others may count it as dead: each time that it was stopped for long, until it went on. */
  readonly longStops: readonly { readonly from: number; readonly to: number | undefined }[];
  /** Each time that Graphile Worker could not record how a job ended there. */
  readonly unrecorded: readonly number[];
  /** Each time that its pool counted as dead, because it had been silent for too long. */
  readonly buried: number[];
}

/** A job that was not run, but copied, or requeued because its worker pool ran its share already. */
export interface Copied {
  readonly job: string;
  /** Its own staged id; null: it was added past its policy. */
  readonly staged: string | null;
  /** The staged id of the copy. A job that is requeued keeps its own. */
  readonly copy: string;
  readonly by: Suspect | undefined;
  readonly at: number;
  /** When the job was added to Graphile Worker. */
  readonly createdAt: number;
}

interface Run extends Execution {
  readonly of: Suspect;
  readonly startedAt: number;
  endedAt?: number;
  ok?: boolean;
  /** It ended because it was told to. */
  cut?: boolean;
  /** Whether it counts for concurrency. */
  counts: boolean;
}

/** The kinds of problem. Each text that `fail` records begins with one. */
export type Problem =
  | "overrun"
  | "lost"
  | "unasked"
  | "duplicate"
  | "leak"
  | "stalled"
  /** Limits of a definition that another one has replaced. */
  | "stale"
  /** A callback before a job of its group had ended, or with other counts than are true. */
  | "group"
  | "failed"
  /** The run was too gentle to show anything. */
  | "weak";

export class Judge {
  readonly #now: () => number;
  readonly #runs = new Map<string, Run[]>();
  readonly #running = new Map<Suspect, Map<number, Run>>();
  readonly #inScope = new Map<string, number>();
  readonly #most = new Map<string, number>();
  /**
   * Each time that more ran than some definition allows, and what ran. Judged once it is known which limits were in force,
   * and which pools counted as dead.
   */
  readonly #crowds: { readonly scope: Scope; readonly at: number; readonly runs: Run[] }[] = [];
  /** Each time that one worker pool ran more of a region than some definition allows it, and what it ran. */
  readonly #heaps: { readonly region: string; readonly at: number; readonly runs: readonly Run[] }[] = [];
  readonly #intended = new Set<string>();
  readonly #staged = new Set<string>();
  readonly #rolledBack = new Set<string>();
  /** Newer jobs of its key, which may have replaced or cancelled it. */
  readonly #newer = new Map<string, string[]>();
  /** The jobs of each callback's group. */
  readonly #groups = new Map<string, readonly string[]>();
  readonly #called = new Set<string>();
  /** By the staged id of the copy. A job may be requeued several times. */
  readonly #copies = new Map<string, Copied[]>();
  /** Staged ids of copies that a process made after it was stopped for long, of jobs it had fetched before. */
  readonly #lateCopies = new Set<string>();
  /** When adopted jobs were added to Graphile Worker, by the id that they kept in staging. */
  readonly #adopted = new Map<string, number>();
  /** When policies were switched off: jobs are admitted past their gates, and may be unstaged. */
  readonly #off: { readonly task: TaskName; readonly from: number; to: number }[] = [];
  readonly #problems = new Map<string, number>();
  #limits = new LimitsInForce();
  /** Jobs that ran well. */
  readonly done = new Set<string>();
  /** When the first problem was found. */
  failedAt = Number.POSITIVE_INFINITY;
  executions = 0;
  /** Runs past a cap beside those of a pool that counted as dead. */
  besideDead = 0;
  duplicates = 0;
  /** How many jobs came back from worker pools that ran their share already. */
  requeued = 0;

  /** `now`: the time in milliseconds; tests give their own clock. */
  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  get stagedCount(): number {
    return this.#staged.size;
  }

  get problems(): string[] {
    return [...this.#problems].map(([problem, times]) => (times === 1 ? problem : `${times} × ${problem}`));
  }

  get missing(): string[] {
    const isReplaced = (id: string) => this.#newer.get(id)?.some((one) => !this.#rolledBack.has(one));
    return [...this.#staged].filter((id) => !this.done.has(id) && !isReplaced(id));
  }

  most(scope: string): number {
    return this.#most.get(scope) ?? 0;
  }

  fail(kind: Problem, what: string): void {
    const problem = `${kind}: ${what}`;
    this.failedAt = Math.min(this.failedAt, this.#now());
    this.#problems.set(problem, (this.#problems.get(problem) ?? 0) + 1);
  }

  intends(ids: readonly string[]): void {
    for (const id of ids) this.#intended.add(id);
  }

  staged(ids: readonly string[]): void {
    for (const id of ids) this.#staged.add(id);
  }

  rolledBack(ids: readonly string[]): void {
    for (const id of ids) this.#rolledBack.add(id);
  }

  /** A job is about to be staged that replaces or cancels these, of its key. */
  newer(job: string, older: readonly string[]): void {
    for (const id of older) getOr(this.#newer, id, () => []).push(job);
  }

  /** A callback is about to be staged, of these jobs. */
  grouped(callback: string, jobs: readonly string[]): void {
    this.#groups.set(callback, jobs);
  }

  /** How many callbacks have run. */
  get called(): number {
    return this.#called.size;
  }

  wasCopied(copied: Copied): void {
    const { copy, by, at } = copied;
    getOr(this.#copies, copy, () => []).push(copied);
    if (by?.longStops.some(({ from }) => from <= at)) this.#lateCopies.add(copy);
  }

  adopted({ job, createdAt }: { readonly job: string; readonly createdAt: number }): void {
    this.#adopted.set(job, createdAt);
  }

  /** The policy of this task is about to be switched off. */
  switchedOff(task: TaskName): void {
    this.#off.push({ task, from: this.#now(), to: Number.POSITIVE_INFINITY });
  }

  switchedOn(task: TaskName): void {
    for (const stretch of this.#off)
      if (stretch.task === task) stretch.to = Math.min(stretch.to, this.#now());
  }

  /** Without this all goes by the first definition. */
  limitsWere(log: LimitsLog): void {
    this.#limits = new LimitsInForce(log);
  }

  swept(repaired: Repaired): void {
    for (const [what, count] of Object.entries(repaired)) {
      if (count > 0 && !SWEPT_BY_DESIGN.has(what)) this.fail("leak", `a sweep repaired ${what}`);
    }
  }

  /** The sweep after everything ended: by then it has nothing to repair. */
  sweptAtTheEnd(repaired: Repaired): void {
    for (const [what, count] of Object.entries(repaired)) {
      if (count > 0) this.fail("leak", `the last sweep repaired ${what}`);
    }
  }

  /** What is left in the tables after everything ended. */
  left(leftovers: Readonly<Record<string, number>>): void {
    for (const [what, count] of Object.entries(leftovers)) {
      if (count !== 0) this.fail("leak", `${count} ${what} left`);
    }
  }

  /** Partitions whose limits are not those of the definition that came last. */
  late(partitions: readonly string[]): void {
    if (partitions.length > 0) this.fail("stale", `${partitions.length} partitions: ${some(partitions)}`);
  }

  /** Nothing has moved for long, and there are jobs left. */
  stalled(leftovers: Readonly<Record<string, number>>, why: object): void {
    const left = `left: ${JSON.stringify(leftovers)}; ${JSON.stringify(why)}`;
    this.fail("stalled", `${this.missing.length} jobs never ran; ${left}`);
  }

  /** How many kills hit a running job or an open tick. */
  hit(hits: number, expected: number): void {
    if (hits >= expected) return;
    this.fail("weak", `${hits} kills hit a running job or an open tick, expected ${expected}`);
  }

  /** Of a course with job groups. */
  groupsEnded(): void {
    if (this.called === 0) this.fail("weak", "no callback of a job group has run");
  }

  /** How many runs were cancelled for a newer job of their key. */
  newestWon(cancelled: number, expected: number): void {
    if (cancelled < expected)
      this.fail("weak", `${cancelled} runs of older jobs were cancelled, expected ${expected}`);
  }

  /** How often another definition came into force. */
  changed(definitions: number): void {
    if (definitions === 0) this.fail("weak", "no other definition came into force");
  }

  /** No worker pool had to keep its share. */
  sharesWereFull(): void {
    if (this.requeued === 0) this.fail("weak", "no worker pool has requeued a job");
  }

  started(of: Suspect, execution: Execution): void {
    this.executions++;
    const startedAt = of.diedAt ?? this.#now(); // what it said before it died comes late
    const run: Run = { ...execution, of, startedAt, counts: false };
    getOr(this.#runs, run.id, () => []).push(run);
    this.#judgeCallback(run);
    if (of.diedAt !== undefined) return;
    getOr(this.#running, of, () => new Map()).set(run.n, run);
    this.#lookForHeap(run);
    if (!run.outside && !isGivenAway(run) && !this.#isUngoverned(run)) this.#enter(run);
  }

  ended(of: Suspect, { n, ok, cut }: { n: number; ok: boolean; cut: boolean }): void {
    const run = this.#running.get(of)?.get(n);
    if (!run) return; // it died in between: its job runs again
    this.#running.get(of)?.delete(n);
    this.#leave(run);
    run.endedAt = this.#now();
    run.ok = ok;
    run.cut = cut;
    if (ok) this.done.add(run.id);
  }

  /** How many jobs run in a process. */
  running(of: Suspect): number {
    return this.#running.get(of)?.size ?? 0;
  }

  /** What ran in a process that died, or counts as dead, runs no more under its slots. */
  lost(of: Suspect): void {
    for (const run of this.#running.get(of)?.values() ?? []) this.#leave(run);
    if (of.diedAt !== undefined) this.#running.delete(of);
  }

  /** Once everything ended. */
  conclude(): void {
    const { missing } = this;
    if (missing.length > 0)
      this.fail("lost", `${missing.length} jobs never ran to their end: ${some(missing)}`);
    const ran = [...this.#runs.keys()];
    const unasked = ran.filter((id) => !this.#intended.has(id) || this.#rolledBack.has(id));
    if (unasked.length > 0)
      this.fail("unasked", `${unasked.length} jobs ran that were not staged: ${some(unasked)}`);
    for (const runs of this.#runs.values()) this.#judgeRepeats(runs);
    this.judgeLimits();
  }

  /** What ran, by the limits that were in force. */
  judgeLimits(): void {
    this.judgeOverruns();
    this.judgeShares();
    this.judgeRates();
    this.judgeVersions();
  }

  judgeRates(): void {
    const calls = [...this.#runs.values()]
      .map((runs) => runs[0]!)
      .filter((run) => run.task === "call" && !run.outside && !this.#isUngoverned(run));
    const aheadMs = THROTTLED_STEP_MS + STEPPED_PASS_MS;
    const check = (scope: string, runs: readonly Run[], bucket: readonly Stretch[]) => {
      const over = excess(runs.map(chargeOf), bucket, aheadMs);
      if (over > 0.01) this.fail("overrun", `${over.toFixed(2)} tokens too many of ${scope}`);
    };
    check("call all", calls, this.#limits.bucket("all", ""));
    for (const [account, runs] of Map.groupBy(calls, (run) => run.account)) {
      check(`call ${account}`, runs, this.#limits.bucket("throttle", account));
    }
  }

  /** No limiter goes back to a lower version, and once a higher one is there nobody is admitted by the lower. */
  judgeVersions(): void {
    const back = this.#limits.wentBack();
    const [first] = back;
    if (first) this.fail("stale", `${back.length} limiters took a lower version: ${JSON.stringify(first)}`);
    const stale = [...this.#runs.values()].flat().flatMap((run) => {
      if (run.outside || this.#isUngoverned(run)) return [];
      const { from, to } = admissionOf(run);
      const { due, had } = this.#limits.versions(run.task, run.account, from, to);
      return had < due ? [`${run.task} ${run.account} by version ${had}, due ${due}: ${tell(run)}`] : [];
    });
    if (stale.length > 0) this.fail("stale", `${stale.length} runs: ${stale[0]}`);
  }

  /** No job of the chaos fails for good, is removed, dropped or replaced. Nobody sees how some ended, which count as gone. */
  #judgeCallback({ id, group }: Run): void {
    const jobs = this.#groups.get(id);
    if (!jobs && !group) return;
    const wrong = (what: string) => this.fail("group", `callback ${id} ${what}`);
    if (!jobs) {
      wrong("is of no group");
      return;
    }
    this.#called.add(id);
    const open = jobs.filter((job) => !this.done.has(job));
    if (open.length > 0) {
      const runs = open.flatMap((job) => this.#runs.get(job) ?? []).map(tell);
      const what = `${open.length} of ${jobs.length} jobs have ended: ${some(open)}`;
      wrong(`runs before ${what}, by the counts ${JSON.stringify(group)}; their runs: ${runs.join(", ")}`);
    }
    if (!group || group.total !== jobs.length || group.succeeded + group.gone !== jobs.length)
      wrong(`of ${jobs.length} jobs has the counts ${JSON.stringify(group)}`);
  }

  #enter(run: Run): void {
    run.counts = true;
    for (const scope of scopesOf(run)) {
      const now = (this.#inScope.get(scope.name) ?? 0) + 1;
      this.#inScope.set(scope.name, now);
      this.#most.set(scope.name, Math.max(this.most(scope.name), now));
      if (now > scope.least) this.#crowds.push({ scope, at: this.#now(), runs: this.#countedIn(scope) });
    }
  }

  #countedIn({ name }: Scope): Run[] {
    const runs = [...this.#running.values()].flatMap((ofProcess) => [...ofProcess.values()]);
    return runs.filter((run) => run.counts && scopesOf(run).some((one) => one.name === name));
  }

  /** The slots of a pool that counted as dead belong to others, though its jobs may still run. */
  judgeOverruns(): void {
    const overruns = this.#crowds.splice(0).flatMap(({ scope, at, runs }) => {
      const bound = runs.filter((run) => this.#isBound(run, scope));
      if (bound.length <= this.#capOf(scope, bound)) return [];
      const own = bound.filter(({ of, lockedAt }) => !of.buried.some((one) => one >= lockedAt && one <= at));
      const cap = this.#capOf(scope, own);
      if (own.length > cap) return [{ name: scope.name, cap, at, runs }];
      this.besideDead++;
      return [];
    });
    for (const [name, [first, ...more]] of Map.groupBy(overruns, (overrun) => overrun.name)) {
      const { cap, at, runs } = first!;
      const what = `more than ${cap} at once of ${name}, ${1 + more.length} times, first at ${at}`;
      const off = `off: ${JSON.stringify(this.#off)}`; // an admission that took too long may have been unbound by limits
      this.fail("overrun", `${what}: ${runs.map(tell).join(", ")}; ${off}`);
    }
  }

  /** A worker pool counts what it runs. So its share holds also after it was stopped for long, or counted as dead. */
  #lookForHeap({ of, task, account, outside }: Run): void {
    if (task !== "render" || outside) return;
    const region = regionOf(account);
    const runs = [...this.#running.get(of)!.values()].filter(
      (one) => one.task === task && regionOf(one.account) === region,
    );
    if (runs.length > LEAST_SHARE) this.#heaps.push({ region, at: this.#now(), runs });
  }

  /**
   * Each run asked for the share between its fetch and its start, and began only if the pool ran less. So when the last of
   * them asked, all the others ran, and they may be as many as the share was then. Nobody knows which was the last.
   */
  judgeShares(): void {
    const overruns = this.#heaps.splice(0).flatMap(({ region, at, runs }) => {
      const bound = runs.filter((run) => !this.#isUngoverned(run) && !this.#startsWhileOff(run));
      // a start locks nothing: it still reads the share before, until the transaction that logs the next one ends
      const from = Math.min(...bound.map(({ lockedAt }) => lockedAt)) - BEGAN_BEFORE_MS;
      const to = Math.max(...bound.map(({ startedAt }) => startedAt));
      const share = this.#limits.capIn("render", "concurrency", region, from, to);
      return bound.length > share ? [{ region, share, at, runs }] : [];
    });
    for (const [region, [first, ...more]] of Map.groupBy(overruns, (overrun) => overrun.region)) {
      const { share, at, runs } = first!;
      const what = `more than its share of ${share} of render ${region}, ${1 + more.length} times, first at ${at}`;
      const off = `off: ${JSON.stringify(this.#off)}`;
      this.fail("overrun", `one worker pool ran ${what}: ${runs.map(tell).join(", ")}; ${off}`);
    }
  }

  /** Whether a run surely occupies a slot of a scope: its partition had the gate when it was admitted. */
  #isBound(run: Run, { gate }: Scope): boolean {
    if (gate === null) return true;
    const { from, to } = admissionOf(run);
    return this.#limits.hasGate(run.task, gate, run.account, from, to);
  }

  /**
   * When the last of these runs was admitted, all the others had their slots. So they are at most as many as the cap was
   * then. Nobody knows which was the last: it was not before any of them began to be admitted, and not after all were.
   */
  #capOf({ task, gate, key, byOperator }: Scope, runs: readonly Run[]): number {
    if (gate === null) return 1;
    const admissions = runs.map(admissionOf);
    const from = Math.max(...admissions.map((one) => one.from));
    const to = Math.max(...admissions.map((one) => one.to));
    return Math.min(byOperator, this.#limits.capIn(task, gate, key, from, to));
  }

  #leave(run: Run): void {
    if (!run.counts) return;
    run.counts = false;
    for (const { name } of scopesOf(run)) this.#inScope.set(name, this.#inScope.get(name)! - 1);
  }

  /** Whether it was admitted, or admitted at its start, while its policy was switched off. */
  #isUngoverned(run: Run): boolean {
    const { task, createdAt, admittedAt } = run;
    if (admittedAt === null) return this.#startsWhileOff(run);
    return this.#off.some(
      (off) =>
        off.task === task &&
        admittedAt >= off.from - BEGAN_BEFORE_MS &&
        Math.max(createdAt, admittedAt - PASS_MS) <= off.to,
    );
  }

  /** Whether it may have asked the database at its start while its policy was switched off. */
  #startsWhileOff({ task, lockedAt, startedAt }: Run): boolean {
    return this.#off.some((off) => off.task === task && lockedAt <= off.to && startedAt >= off.from);
  }

  /** Whether a job that was added to Graphile Worker then may be one that was unstaged, under a new id. */
  #isUnstaged(createdAt: number): boolean {
    return this.#off.some(({ from, to }) => createdAt >= from && createdAt <= to);
  }

  /** Whether a run may be followed by another of its job: it failed, or its process died or gave up with the job in hand. */
  #explains(before: Run, after: Run): boolean {
    const same = before.job === after.job;
    if (this.#isLeftOriginal(after, before) || this.#isLeftOriginal(before, after)) return true;
    if (same && isGivenAway(after)) return true; // fetched first, started late
    // after an uninstall, and unstaged, a copy is a job like any other
    const isFromIt = after.outside || this.#isUnstaged(after.createdAt);
    // a run that its worker's end has cut is no attempt
    const least = before.attempt + (before.cut ? 0 : 1);
    if (same ? after.attempt < least : !isFromIt && !this.#isCopy(after.staged, before.job)) return false;
    if (before.ok === false || isGivenAway(before) || this.#lateCopies.has(after.staged)) return true;
    return isInTrouble(before.of, before.startedAt, before.endedAt, after.startedAt);
  }

  /**
   * An original that a worker without the package runs beside its copy: the process that copied it died, or gave up,
   * before it could complete it.
   */
  #isLeftOriginal(original: Run, copy: Run): boolean {
    const copied = this.#copies.get(copy.staged)?.find(({ job }) => job === original.job);
    if (!original.outside || !copied?.by) return false;
    return isInTrouble(copied.by, copied.at, copied.at, original.startedAt);
  }

  /**
   * Whether it is a copy of the job, or of a copy that was itself copied, or unstaged and maybe adopted again. A job
   * that was requeued is a copy of each row of Graphile Worker's that it has had.
   */
  #isCopy(staged: string, job: string): boolean {
    const ids = new Set([staged]);
    for (const id of ids) {
      if (this.#isUnstaged(this.#adopted.get(id) ?? Number.NaN)) return true;
      for (const copied of this.#copies.get(id) ?? []) {
        if (copied.job === job || this.#isUnstaged(copied.createdAt)) return true;
        if (copied.staged !== null) ids.add(copied.staged); // the loop comes to it
      }
    }
    return false;
  }

  #judgeRepeats(runs: readonly Run[]): void {
    runs.forEach((run, place) => {
      const earlier = runs.slice(0, place);
      if (earlier.some(({ ok }) => ok !== false)) this.duplicates++;
      const unexplained = earlier.find((before) => !this.#explains(before, run));
      if (unexplained) this.fail("duplicate", `${run.id} ran again: ${tell(unexplained)}, then ${tell(run)}`);
    });
  }
}

/** Fetched before its process was stopped for long: when it went on, the job's slot belonged to another run. */
function isGivenAway({ of, lockedAt }: Run): boolean {
  return of.longStops.some(({ to }) => to === undefined || lockedAt <= to);
}

/** Whether a process died or gave up with a job in hand: from its start until it must have told the end, and before `until`. */
function isInTrouble(of: Suspect, from: number, endedAt: number | undefined, until: number): boolean {
  const inHand = (endedAt ?? Number.POSITIVE_INFINITY) + COMPLETED_WITHIN_MS;
  const { diedAt, longStops, unrecorded, buried } = of;
  const ends = [diedAt, ...longStops.map((stop) => stop.from), ...unrecorded, ...buried].filter(
    (at) => at !== undefined,
  );
  return ends.some((at) => at >= from && at <= Math.min(inHand, until));
}

/** What a gate counts over. */
interface Scope {
  readonly name: string;
  /** The policy, or the shared limit. */
  readonly task: string;
  /** Null: jobs of one job key, of which each cancels the run of the one before. */
  readonly gate: string | null;
  readonly key: string;
  /** The least that a definition allows. */
  readonly least: number;
  readonly byOperator: number;
}

function scopesOf({ task, account, key }: Execution): readonly Scope[] {
  if (task === "call") return [];
  const region = regionOf(account);
  const byOperator = region === LIMITED.region ? LIMITED.max : Number.POSITIVE_INFINITY;
  const unbound = Number.POSITIVE_INFINITY;
  const least = Math.min(...Object.values(DEFINITIONS).map(({ together }) => together));
  const together = { name: TOGETHER, task: TOGETHER, gate: TOGETHER, key: "", least, byOperator: unbound };
  if (task === "render") return [together];
  return [
    together,
    ...(key === undefined
      ? []
      : [{ name: `job key ${key}`, task, gate: null, key, least: 1, byOperator: unbound }]),
    scopeOf(task, "account", { gate: "concurrency", key: account, byOperator }),
    scopeOf(task, "region", { gate: "region", key: region, byOperator: unbound }),
    scopeOf(task, "all", { gate: "all", key: "", byOperator: unbound }),
  ];
}

function scopeOf(
  task: TaskName,
  cap: keyof (typeof DEFINITIONS)["first"]["caps"],
  { gate, key, byOperator }: { gate: string; key: string; byOperator: number },
): Scope {
  const least = Math.min(
    byOperator,
    ...Object.values(DEFINITIONS).map(({ caps }) => caps[cap] ?? Number.POSITIVE_INFINITY),
  );
  return { name: `${task} ${key || "all"}`, task, gate, key, least, byOperator };
}

/**
 * When a run got its slot: not before `from`, not after `to`. Graphile Worker's row was made by the transaction of a first
 * admission. Of another one the time is the pass's `now`, which a ticker may have set wrong.
 */
function admissionOf({ createdAt, admittedAt, lockedAt, startedAt }: Run): { from: number; to: number } {
  if (admittedAt === null) return { from: lockedAt, to: startedAt };
  const from = admittedAt === createdAt ? admittedAt : Math.min(admittedAt - STEP_MS, lockedAt);
  return { from, to: lockedAt + FETCH_MS };
}

/** Admission took the tokens after it began to write the job, and before a worker could fetch it. */
function chargeOf({ createdAt, admittedAt, lockedAt, startedAt }: Run): Charge {
  return { from: createdAt, to: admittedAt === null ? startedAt : lockedAt };
}

function tell(run: Run): string {
  const { job, attempt, staged, createdAt, admittedAt, lockedAt, startedAt, endedAt, ok } = run;
  const { diedAt, longStops, unrecorded, buried } = run.of;
  const where = { diedAt, longStops, unrecorded, buried };
  const times = { createdAt, admittedAt, lockedAt, startedAt, endedAt };
  return JSON.stringify({ job, attempt, staged, ...times, ok, ...where });
}

function some(ids: readonly string[]): string {
  return ids.slice(0, 5).join(", ");
}

function getOr<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
