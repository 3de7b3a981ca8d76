// Admission as docs/engine.md describes it: slow, in memory, and without a line of the engine's. What may go in one
// pass, what that costs, what a release frees.
import type { TestGate } from "../helpers/engine.ts";

export interface Job {
  readonly id: string;
  /** The lane of it, see {@link laneOf}. */
  readonly partition: string;
  readonly priority: number;
  /** Later, once it was postponed. */
  runAt: number;
  readonly cost: number;
  /** Its time has come, and a pass saw it. A clock that goes back does not take it away again. */
  due: boolean;
  /** From then on it is never admitted. */
  readonly expiresAt?: number;
  /** Its deadline, if the policy goes by deadlines. In strict order -Infinity: it has failed, and the others wait for it. */
  readonly sortAt?: number;
}

/** What an added job says of its partition. */
export interface Note {
  readonly partition: string;
  readonly weight: number;
  readonly gates: readonly TestGate[];
  readonly cheapest: number;
  /** What its context has, for limits that go by it. */
  readonly plan: string | undefined;
  /** How many slots its jobs take of gates by cost. */
  readonly takes: number;
}

export interface Limiter {
  readonly name: string;
  readonly gate: TestGate;
  readonly key: string;
  numbers: Numbers;
  inFlight: number;
  tokens: number;
  filledAt: number;
  /** "sliding", or a calendar window's unit and zone. Null: it is a bucket. */
  window: string | null;
  smooth: boolean;
  /** It holds nothing back. */
  shadow: boolean;
  /** Its `max` is the share of each worker pool. */
  perWorker: boolean;
  /** How many jobs freed a slot of it. */
  released: number;
  /** A job has come back. */
  lowered: Lowered | undefined;
  /** Of a window, oldest first. */
  spent: readonly Spending[];
  /** The longest window it had, which may come back, and until when that is remembered. */
  longest: number;
  longestUntil: number;
  learnt: number;
  lag: number;
  decreasedAt: number;
}

/** Until `until` no more than `cap` are in flight. Then it rises, each time after as many seconds. */
interface Lowered {
  readonly cap: number;
  readonly until: number;
  readonly seconds: number;
  /** How many jobs had freed a slot then. */
  readonly released: number;
}

interface Spending {
  readonly at: number;
  readonly cost: number;
}

/** The lanes of a partition have all in common that stands in `COMMON`. */
export interface Partition {
  readonly key: string;
  weight: number;
  plan: string | undefined;
  /** The least cost it was ever told of, and one at most. */
  cheapest: number;
  limiters: Limiter[];
  /** How many slots each of its jobs takes of a gate by cost. */
  takes: number;
  /** What the newest job says of its limits, and since when: what jobs paid under others is unknown. */
  limits: string | undefined;
  limitsSince: number;
  /** When it admitted last. */
  admittedAt: number;
  decayed: number;
  decayedAt: number;
  /** Seconds its jobs ran lately; undefined: none has ended. */
  meanWork: number | undefined;
  pausedUntil: number;
  heldUntil: number;
  /** After a hold one job goes at a time, until one has succeeded; and which one is out. */
  probing: boolean;
  probe: string | undefined;
  /** Since when it has had work, and nothing of it was admitted. */
  waitsSince: number | undefined;
}

const COMMON = ["plan", "pausedUntil", "heldUntil", "probing", "probe"] as const;

export interface Override {
  readonly gate: string;
  readonly key: string | null;
  /** It goes by the context of partitions; undefined: it does not. */
  readonly plan: string | undefined;
  readonly set: Numbers;
  readonly from: number;
  readonly until: number;
  /** Cleared at `until`; a clock that goes back does not bring it back. */
  readonly cleared?: true;
}

/** How jobs went: past the gates, or ranked by these. */
export interface Charging {
  readonly forced?: boolean;
  readonly decayed?: ReadonlyMap<string, number>;
  readonly first?: ReadonlySet<string>;
}

export interface Settings {
  readonly halfLifeSeconds: number | null;
  readonly fairBy: "jobs" | "work";
  readonly order?: "strict" | "deadline" | null;
  readonly batchSize: number;
  readonly budget: number | null;
  /** Undefined: jobs that gates deny wait. */
  readonly busyDelaySeconds?: number;
}

export interface Finish {
  readonly id: string;
  /** Null: nobody saw it. */
  readonly ok: boolean | null;
  readonly lagMs: number;
  readonly seconds: number;
  /** What its run cost, if it said so. */
  readonly settled?: number;
}

type Numbers = Readonly<Record<string, number | null>>;

interface Candidate {
  readonly job: Job;
  readonly partition: Partition;
  readonly virtualTime: number;
}

interface Flight {
  readonly job: Job;
  readonly limiters: readonly Limiter[];
  /** How many it took of each. */
  readonly slots: ReadonlyMap<Limiter, number>;
  readonly admittedAt: number;
  /** What its partition was charged. */
  readonly work: number;
  /** It went past the gates, so nobody knows what it has paid. */
  readonly forced: boolean;
}

const CLOSE = 1e-9;
const SECOND = 1000;
const MICROSECOND = 0.001;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Those who wait for longer may go before their turn. */
const LONG = 10 * SECOND;

export class Model {
  readonly settings: Settings;
  readonly limiters = new Map<string, Limiter>();
  readonly partitions = new Map<string, Partition>();
  readonly staged = new Map<string, Job>();
  readonly inFlight = new Map<string, Flight>();
  pausedUntil = Number.NEGATIVE_INFINITY;
  /** Worker pools that live. */
  readonly pools = new Set<string>();
  /** As the last pass found them: an adaptive one that was idle is lower once a job of the pass is in flight. */
  #caps: ReadonlyMap<Limiter, number> = new Map();
  /** What goes in a pass is the engine's choice: one keyed scope refuses jobs because of those which another one refuses. */
  isChoice = false;
  /** Jobs that shadow gates would have held back, by gate. */
  readonly shadowDenied = new Map<string, number>();
  #overrides: Override[] = [];
  #notes: Note[] = [];
  #worked: { readonly job: Job; readonly seconds: number; readonly charged: number }[] = [];
  #probesEnded: { readonly job: Job; readonly ok: boolean | null }[] = [];

  constructor(settings: Settings) {
    this.settings = settings;
  }

  stage(jobs: readonly Job[], note: Omit<Note, "partition" | "cheapest">): void {
    for (const job of jobs) this.staged.set(job.id, job);
    for (const partition of new Set(jobs.map((job) => job.partition)))
      this.#notes.push({ ...note, partition, cheapest: jobs[0]!.cost });
  }

  /** Of each partition the newest note counts; of a shared limiter the newest note of any partition. */
  route(now: number): void {
    const newest = new Map<string, Note>();
    for (const note of this.#notes) {
      newest.delete(note.partition);
      newest.set(note.partition, note);
    }
    const notes = this.#notes;
    this.#notes = [];
    const wanted = new Map<string, { gate: TestGate; key: string; turns: boolean }>();
    for (const { partition, gates, plan } of newest.values())
      for (const gate of gates) {
        const key = gate.keyOf(partitionOf(partition));
        const turns = gate.scope === "partition" && this.#turns(partition, plan);
        wanted.set(limiterName(gate.name, key), { gate, key, turns });
      }
    const made = [...wanted.keys()].filter((name) => !this.limiters.has(name));
    for (const [name, { gate, key, turns }] of wanted) this.#setNumbers(name, gate, key, turns, now);
    for (const { partition: key, weight, gates, plan, takes } of newest.values()) {
      const partition = this.partitions.get(key) ?? this.#newLane(key, now);
      partition.weight = weight;
      partition.plan = plan;
      partition.takes = takes;
      const scopeKeys = new Map(gates.map((gate) => [gate, gate.keyOf(partitionOf(key))]));
      const limits = JSON.stringify(gates.map((gate) => ({ ...gate, key: scopeKeys.get(gate) })));
      if (this.partitions.has(key) && partition.limits !== limits)
        partition.limitsSince = Math.max(now, partition.admittedAt + MICROSECOND);
      partition.limits = limits;
      partition.limiters = gates.map(
        (gate) => this.limiters.get(limiterName(gate.name, scopeKeys.get(gate)!))!,
      );
      this.partitions.set(key, partition);
      for (const note of notes)
        if (note.partition === key) partition.cheapest = Math.min(partition.cheapest, note.cheapest);
    }
    for (const name of made) this.#fill(this.limiters.get(name)!, now);
    for (const { job, ok } of this.#probesEnded) {
      const partition = this.partitions.get(job.partition)!;
      if (partition.probe !== job.id) continue;
      partition.probe = undefined;
      partition.probing = !ok;
    }
    this.#probesEnded = [];
    this.#settleWork(now);
    for (const partition of this.partitions.values())
      partition.waitsSince = this.#hasWork(partition.key)
        ? Math.min(partition.waitsSince ?? now, now)
        : undefined;
  }

  #newLane(key: string, now: number): Partition {
    const [other, ...others] = this.lanesOf(key);
    const lane = newPartition(key, now);
    if (!other) return lane;
    lane.meanWork = other.meanWork;
    lane.decayed = this.decayedOf(other, now);
    if (others.length === 0) this.#tell([other], now);
    for (const name of COMMON)
      Object.defineProperty(lane, name, {
        get: () => other[name],
        set: (value: never) => {
          other[name] = value;
        },
      });
    return lane;
  }

  /** Whether another context brings or ends a limit: then what its buckets gained is worked out by the one before. */
  #turns(key: string, plan: string | undefined): boolean {
    const partition = this.lanesOf(key)[0];
    if (!partition || partition.plan === plan) return false;
    return this.#overrides.some(
      (one) => one.plan !== undefined && (one.plan === plan || one.plan === partition.plan),
    );
  }

  lanesOf(key: string): Partition[] {
    return [...this.partitions.values()].filter((one) => partitionOf(one.key) === partitionOf(key));
  }

  /** Where a partition has several lanes, its own limiters count over those, as ones by key do. */
  #scopeOf({ gate, key }: Limiter): TestGate["scope"] {
    return gate.scope === "partition" && this.lanesOf(key).length > 1 ? "key" : gate.scope;
  }

  /** Of these the lanes of a partition take turns, in the order of their next jobs: which one it is, and of how many. */
  #turnOf(key: string, keys: readonly string[]): readonly [lane: number, lanes: number] {
    const lanes = keys.filter((one) => partitionOf(one) === partitionOf(key));
    const nexts = lanes.flatMap((one) => this.line(one).slice(0, 1)).sort(inLine);
    const place = nexts.findIndex(({ partition }) => partition === key);
    return [place < 0 ? 1 : place + 1, Math.max(nexts.length, 1)];
  }

  #hasWork(key: string): boolean {
    return [...this.staged.values()].some(({ partition }) => partition === key);
  }

  /** Which of those who do may go before their turn is the engine's choice. */
  waitsLong(key: string, now: number): boolean {
    const { waitsSince } = this.partitions.get(key)!;
    return this.settings.halfLifeSeconds !== null && waitsSince !== undefined && waitsSince <= now - LONG;
  }

  /** What ended since counts for what it took, and moves the mean a fifth of the way each. */
  #settleWork(now: number): void {
    for (const partition of this.partitions.values()) {
      const ended = this.#worked.filter(
        ({ job }) => partitionOf(job.partition) === partitionOf(partition.key),
      );
      if (ended.length === 0) continue;
      const seconds = ended.reduce((sum, one) => sum + one.seconds, 0);
      const charged = ended.reduce((sum, one) => sum + one.charged, 0);
      partition.decayed = Math.max(0, this.ownDecayedOf(partition, now) + seconds - charged);
      partition.decayedAt = laterMark(partition.decayedAt, now);
      const mean = seconds / ended.length;
      partition.meanWork = mean + ((partition.meanWork ?? mean) - mean) * 0.8 ** ended.length;
    }
    this.#worked = [];
  }

  /** What a job of the partition counts for, in fairness. */
  #workOf({ meanWork = 1 }: Partition): number {
    return this.settings.fairBy === "work" ? Math.max(meanWork, 0.001) : 1;
  }

  hold(partition: Partition, until: number): void {
    partition.heldUntil = Math.max(partition.heldUntil, until); // a later hold extends an earlier one
    partition.probing = true;
  }

  resume(partition: Partition): void {
    partition.pausedUntil = Number.NEGATIVE_INFINITY;
    partition.heldUntil = Number.NEGATIVE_INFINITY;
    partition.probing = false;
    partition.probe = undefined;
  }

  #setNumbers(name: string, gate: TestGate, key: string, turns: boolean, now: number): void {
    const limiter = this.limiters.get(name);
    if (!limiter) {
      this.limiters.set(name, newLimiter(name, gate, key, now));
      return;
    }
    const window = windowOf(gate);
    const isSame = JSON.stringify(limiter.numbers) === JSON.stringify(gate.numbers);
    const shadow = gate.shadow === true;
    limiter.perWorker = gate.perWorker === true;
    if (!turns && isSame && limiter.window === window && limiter.shadow === shadow) return; // two numbers that are the same are of one kind: smooth or not
    // what the old rate brought by now stays, within the new capacity; what a bucket lacks counts as spent in a window
    const tokens = limiter.window ? leftOfWindow(limiter, limiter.numbers, now) : this.#settled(limiter, now);
    const lacks = capacityOf(limiter.numbers) - tokens;
    limiter.longest = limiter.window
      ? Math.max(rememberedOf(limiter, limiter.numbers, now), longestOf(limiter, now))
      : 0;
    limiter.longestUntil = now + DAY + limiter.longest;
    if (!window) limiter.spent = [];
    else if (!limiter.window) limiter.spent = lacks > 0 ? [{ at: now, cost: lacks }] : [];
    limiter.window = window;
    limiter.smooth = gate.smooth === true;
    limiter.shadow = shadow;
    limiter.tokens = Math.min(tokens, capacityOf(gate.numbers));
    limiter.filledAt = laterMark(limiter.filledAt, now);
    limiter.numbers = gate.numbers;
    if (gate.kind === "adaptive_concurrency")
      limiter.learnt = between(limiter.learnt, gate.numbers.min ?? 0, gate.numbers.max);
  }

  /** A bucket starts full, by the numbers in force. A halt takes nothing. */
  #fill(limiter: Limiter, now: number): void {
    const numbers = this.numbersOf(limiter, now);
    limiter.tokens = capacityOf(numbers.rate! > 0 ? numbers : limiter.numbers);
  }

  /** From its beginning it replaces the earlier one of the same target. */
  override(override: Override): void {
    this.#endOverrides(override, override.from, {}, override.until);
    this.#overrides.push(override);
  }

  clearOverride(target: Pick<Override, "gate" | "key" | "plan">, now: number): void {
    this.#endOverrides(target, now, { cleared: true });
  }

  /** Those that begin at `until` or later stay. */
  #endOverrides(
    { gate, key, plan }: Pick<Override, "gate" | "key" | "plan">,
    at: number,
    how: { cleared?: true },
    until = Number.POSITIVE_INFINITY,
  ): void {
    this.#overrides = this.#overrides.flatMap((other) => {
      const isTarget = other.gate === gate && other.key === key && other.plan === plan;
      if (!isTarget || other.cleared || other.from >= until) return [other];
      return other.from < at ? [{ ...other, ...how, until: Math.min(other.until, at) }] : [];
    });
  }

  /** The overrides of a limiter that somebody knows of whose clock says `now`; those that are over, too. */
  #overridesOf(limiter: Limiter, now: number): Override[] {
    const its = limiter.gate.scope === "partition" ? this.lanesOf(limiter.key)[0]?.plan : undefined;
    return this.#overrides.filter(
      ({ gate, key, plan, from, until, cleared }) =>
        gate === limiter.gate.name &&
        (key === limiter.key || key === null) &&
        (plan === undefined || plan === its) &&
        from <= now &&
        !(cleared && now < until),
    );
  }

  /**
   * The numbers in force at a time: an override of this key goes before one of the context, and that before one of all keys,
   * a later one before others.
   */
  numbersOf(limiter: Limiter, now: number, at = now): Numbers {
    const live = this.#overridesOf(limiter, now).filter(({ from, until }) => from <= at && at < until);
    const override =
      live.findLast(({ key }) => key !== null) ??
      live.findLast(({ plan }) => plan !== undefined) ??
      live.at(-1);
    return { ...limiter.numbers, ...override?.set };
  }

  /** What a bucket or a window holds; at a rate of zero nothing goes all the same. */
  tokensOf(limiter: Limiter, now: number): number {
    const numbers = this.numbersOf(limiter, now);
    if (limiter.window) return leftOfWindow(limiter, numbers, now);
    const tokens = this.#settled(limiter, now);
    return numbers.rate! > 0 ? Math.min(fullOf(limiter, numbers), tokens) : tokens;
  }

  /** A bucket's tokens, each stretch since it was filled counted by the numbers in force then. */
  #settled(limiter: Limiter, now: number): number {
    const turns = new Set(this.#overridesOf(limiter, now).flatMap(({ from, until }) => [from, until])).add(
      now,
    );
    let { tokens, filledAt } = limiter;
    for (const at of [...turns].sort((a, b) => a - b).filter((at) => at > filledAt && at <= now)) {
      const numbers = this.numbersOf(limiter, now, filledAt);
      const gained = (((at - filledAt) / SECOND) * numbers.rate!) / numbers.per!;
      // a halt brings nothing, and takes nothing
      if (numbers.rate! > 0) tokens = Math.min(fullOf(limiter, numbers), tokens + gained);
      filledAt = at;
    }
    return tokens;
  }

  capOf(limiter: Limiter, now: number): number {
    const { max, min, initial_max } = this.numbersOf(limiter, now);
    if (limiter.gate.kind === "concurrency" && limiter.perWorker)
      return Math.min(max! * Math.max(this.pools.size, 1), loweredCap(limiter, now));
    if (limiter.gate.kind === "concurrency") return max!;
    const learnt = Math.max(limiter.learnt, min!);
    return between(limiter.inFlight === 0 ? Math.max(learnt, initial_max!) : learnt, 0, max);
  }

  /**
   * Whether a limiter lets the job through that is at `rank` in its line, with `cost` from the first up to it, and as many `slots`
   * taken.
   */
  #lets(limiter: Limiter, rank: number, cost: number, now: number, slots = rank): boolean {
    return limiter.shadow || this.hasRoom(limiter, rank, cost, now, slots);
  }

  /** The same of a gate that is real, or would be. */
  hasRoom(limiter: Limiter, rank: number, cost: number, now: number, slots = rank): boolean {
    if (limiter.gate.kind !== "throttle") return slots <= this.capOf(limiter, now) - limiter.inFlight;
    const numbers = this.numbersOf(limiter, now);
    if (numbers.rate! <= 0) return false;
    const tokens = this.tokensOf(limiter, now);
    // dearer than its bucket: goes when the bucket is full
    return cost <= tokens + CLOSE || (rank === 1 && tokens >= capacityOf(numbers) - CLOSE);
  }

  /** The due jobs of a partition, in order. */
  line(partition: string): Job[] {
    return [...this.staged.values()].filter((job) => job.partition === partition && job.due).sort(inLine);
  }

  /** The job for which the others of a partition wait, due or not. */
  #begunOf(key: string): Job | undefined {
    const jobs = [...this.staged.values()].filter((job) => job.partition === key);
    return jobs.filter((job) => job.sortAt === Number.NEGATIVE_INFINITY).sort(inLine)[0];
  }

  /** Whether a lane waits in strict order, once what is due is in its line: for its own first job, or for another lane's. */
  waitsInOrder(key: string): boolean {
    const nexts = this.lanesOf(key).flatMap(
      (lane) => this.#begunOf(lane.key) ?? this.line(lane.key).slice(0, 1),
    );
    const [first] = nexts.sort(inLine);
    if (this.settings.order !== "strict" || !first) return false;
    return first.partition !== key || (first.sortAt !== undefined && !first.due);
  }

  /** A pass has looked at a partition that waits in order: a stop that is over is forgotten, and no more. */
  passBy(key: string, now: number): void {
    const partition = this.partitions.get(key)!;
    if (partition.pausedUntil <= now) partition.pausedUntil = Number.NEGATIVE_INFINITY;
    if (partition.heldUntil <= now) partition.heldUntil = Number.NEGATIVE_INFINITY;
  }

  /** What is due by now enters the lines of these partitions. */
  promote(keys: readonly string[], now: number): void {
    for (const job of this.staged.values())
      if (keys.includes(job.partition) && job.runAt <= now) job.due = true;
  }

  /** What has expired by now leaves these partitions, due or not. */
  expire(keys: readonly string[], now: number): void {
    for (const job of this.staged.values())
      if (keys.includes(job.partition) && job.expiresAt !== undefined && job.expiresAt <= now)
        this.staged.delete(job.id);
  }

  /**
   * The jobs one pass over these partitions admits. `decayed` may give the decayed admits to their last bit. The next
   * jobs of `first` go before others.
   */
  admissible(
    keys: readonly string[],
    now: number,
    decayed?: ReadonlyMap<string, number>,
    first: ReadonlySet<string> = new Set(),
  ): Job[] {
    let candidates = keys.flatMap((key) => {
      const partition = this.partitions.get(key)!;
      return this.line(key)
        .slice(0, Math.min(this.settings.batchSize, this.#mostOf(partition, now, keys)))
        .map((job, index): Candidate => {
          const virtualTime =
            index === 0 && first.has(key)
              ? Number.NEGATIVE_INFINITY
              : this.#virtualTime(partition, index + 1, now, decayed?.get(key), keys);
          return { job, partition, virtualTime };
        });
    });
    const end = Math.min(...keys.map((key) => this.#goesOnAt(key, keys, now, decayed?.get(key))));
    candidates = candidates.filter(({ virtualTime }) => virtualTime <= end);
    candidates.sort((a, b) => compare(a.virtualTime, b.virtualTime) || inLine(a.job, b.job));
    for (const scope of ["partition", "key", "policy"] as const) {
      const limiters = [...this.limiters.values()].filter((one) => this.#scopeOf(one) === scope);
      const refused = limiters.map((limiter) => this.#refusedBy(limiter, candidates, now));
      if (scope === "key")
        this.isChoice = limiters.some((limiter, n) => {
          const elsewhere = refused.filter((_, other) => other !== n).flat();
          const left = candidates.filter((candidate) => !elsewhere.includes(candidate));
          const without = this.#refusedBy(limiter, left, now);
          return refused[n]!.some((one) => left.includes(one) && !without.includes(one));
        });
      candidates = candidates.filter((candidate) => !refused.flat().includes(candidate));
    }
    return candidates.slice(0, this.settings.budget ?? undefined).map(({ job }) => job);
  }

  /**
   * What partitions are claimed by, smallest first: the virtual time of the next job. By age, without a half-life. A pass that
   * has `looked` at a lane lets it follow those of its partition that go before.
   */
  fairKey(partition: Partition, now: number, looked: readonly string[] = []): number {
    if (this.settings.halfLifeSeconds === null) return now / SECOND;
    const all = this.lanesOf(partition.key).map(({ key }) => key);
    const lanes = all.filter((one) => looked.includes(one) || this.#hasWork(one));
    const [lane] = all.some((one) => looked.includes(one)) ? this.#turnOf(partition.key, lanes) : [1];
    const decayed = this.decayedOf(partition, now) + (lane - 1) * this.#workOf(partition);
    return this.#virtualTime(partition, 1, now, decayed);
  }

  #virtualTime(
    partition: Partition,
    position: number,
    now: number,
    decayed = this.decayedOf(partition, now),
    keys: readonly string[] = [partition.key],
  ): number {
    if (this.settings.halfLifeSeconds === null) return 0;
    const work = this.#workOf(partition);
    const jobs = decayed / work;
    const [lane, lanes] = this.#turnOf(partition.key, keys);
    // a trace of old admissions counts as nothing
    return ((jobs < 0.001 ? 0 : jobs) + (lane - lanes) + position * lanes) / (partition.weight / work);
  }

  /** By work: when it is the turn of the job that the batch leaves for the next pass, for which others wait. */
  #goesOnAt(key: string, keys: readonly string[], now: number, decayed?: number): number {
    const { fairBy, batchSize } = this.settings;
    const partition = this.partitions.get(key)!;
    const leaves = Math.min(this.line(key).length, this.#mostOf(partition, now, keys)) > batchSize;
    if (fairBy !== "work" || partition.probing || !leaves) return Number.POSITIVE_INFINITY;
    return this.#virtualTime(partition, batchSize + 1, now, decayed, keys);
  }

  /** More of a partition's jobs than this could not go even if all were its cheapest: they stand in nobody's way. */
  #mostOf(partition: Partition, now: number, keys: readonly string[]): number {
    const { key, limiters, cheapest, probing, probe } = partition;
    if (probe !== undefined || (probing && this.#turnOf(key, keys)[0] > 1)) return 0;
    const most = limiters.map((limiter) => {
      if (limiter.shadow) return Number.POSITIVE_INFINITY;
      if (limiter.gate.kind !== "throttle") {
        const cap = this.capOf(limiter, now);
        const free = Math.max(cap - limiter.inFlight, 0);
        const takes = takesOf(partition, limiter);
        if (takes > cap) return 0;
        // one for which too few are free keeps others from them, but for its own limiter
        if (free >= takes || this.#scopeOf(limiter) === "partition") return Math.floor(free / takes);
        return Math.min(free, 1);
      }
      const numbers = this.numbersOf(limiter, now);
      const tokens = this.tokensOf(limiter, now);
      if (numbers.rate! <= 0) return 0;
      if (cheapest === 0 && tokens >= 0) return Number.POSITIVE_INFINITY;
      const jobs = Math.floor((tokens + CLOSE) / Math.max(cheapest, CLOSE));
      return tokens >= capacityOf(numbers) - CLOSE ? Math.max(jobs, 1) : jobs;
    });
    return Math.max(Math.min(...most, probing ? 1 : Number.POSITIVE_INFINITY), 0);
  }

  #refusedBy(limiter: Limiter, candidates: readonly Candidate[], now: number): Candidate[] {
    const line = candidates.filter(({ partition }) => partition.limiters.includes(limiter));
    let cost = 0;
    let slots = 0;
    return line.filter(({ job, partition }, index) => {
      cost += job.cost;
      slots += takesOf(partition, limiter);
      return !this.#lets(limiter, index + 1, cost, now, slots);
    });
  }

  /**
   * What a shadow gate makes of the jobs that went, in their order: what those cost that it had room for. From the first one
   * that it had none for on, it would have held all back.
   */
  #throughShadow(limiter: Limiter, inOrder: readonly Job[], now: number): { cost: number; denied: number } {
    const line = inOrder.filter(({ partition }) =>
      this.partitions.get(partition)!.limiters.includes(limiter),
    );
    let used = 0;
    let slots = 0;
    const end = line.findIndex(({ cost, partition }, index) => {
      used += cost;
      slots += takesOf(this.partitions.get(partition)!, limiter);
      return !this.hasRoom(limiter, index + 1, used, now, slots);
    });
    const passed = end < 0 ? line : line.slice(0, end);
    return { cost: passed.reduce((sum, { cost }) => sum + cost, 0), denied: line.length - passed.length };
  }

  /** Admitted jobs in the order in which a pass ranks them; past the gates only their own order counts. */
  #ranked(
    keys: readonly string[],
    admitted: readonly Job[],
    now: number,
    forced: boolean,
    decayed?: ReadonlyMap<string, number>,
    first?: ReadonlySet<string>,
  ): Job[] {
    const time = (job: Job) => {
      if (forced) return 0;
      const place = this.line(job.partition).indexOf(job);
      if (place === 0 && first?.has(job.partition)) return Number.NEGATIVE_INFINITY;
      const partition = this.partitions.get(job.partition)!;
      return this.#virtualTime(partition, place + 1, now, decayed?.get(job.partition), keys);
    };
    const timed = admitted.map((job) => ({ job, at: time(job) }));
    return timed.sort((a, b) => compare(a.at, b.at) || inLine(a.job, b.job)).map(({ job }) => job);
  }

  /** Moves these jobs in flight, after one pass over these partitions. `forced`: past the gates, tokens stop at none. */
  charge(
    keys: readonly string[],
    admitted: readonly Job[],
    now: number,
    { forced = false, decayed, first }: Charging = {},
  ): void {
    const partitions = keys.map((key) => this.partitions.get(key)!);
    const touched = new Set(partitions.flatMap(({ limiters }) => limiters));
    const inOrder = this.#ranked(keys, admitted, now, forced, decayed, first);
    const shadows = new Map(
      [...touched]
        .filter(({ shadow }) => shadow)
        .map((limiter) => [limiter, this.#throughShadow(limiter, inOrder, now)]),
    );
    for (const [{ gate }, { denied }] of shadows)
      if (denied > 0 && !forced)
        this.shadowDenied.set(gate.name, (this.shadowDenied.get(gate.name) ?? 0) + denied);
    const before = new Map([...touched].map((limiter) => [limiter, this.tokensOf(limiter, now)]));
    this.#caps = new Map(
      [...touched].filter(({ gate }) => gate.kind !== "throttle").map((one) => [one, this.capOf(one, now)]),
    );
    const spent = new Map<Limiter, number>();
    for (const job of admitted) {
      const partition = this.partitions.get(job.partition)!;
      const { limiters } = partition;
      for (const limiter of limiters) {
        if (limiter.gate.kind !== "throttle") limiter.inFlight += takesOf(partition, limiter);
        spent.set(limiter, (spent.get(limiter) ?? 0) + job.cost);
      }
      partition.admittedAt = now;
      this.staged.delete(job.id);
      const slots = new Map(limiters.map((limiter) => [limiter, takesOf(partition, limiter)]));
      this.inFlight.set(job.id, {
        ...{ job, limiters, slots, admittedAt: now, work: this.#workOf(partition), forced },
      });
    }
    const throttles = [...touched].filter(({ gate }) => gate.kind === "throttle");
    const leftOf = new Map(
      throttles.map((limiter) => {
        const had = before.get(limiter)!;
        const shadow = shadows.get(limiter);
        const paid = had - (shadow ? shadow.cost : (spent.get(limiter) ?? 0));
        return [limiter, forced && !shadow ? Math.max(paid, Math.min(had, 0)) : paid];
      }),
    );
    for (const [limiter, left] of leftOf) {
      const had = before.get(limiter)!;
      if (
        !spent.has(limiter) &&
        limiter.filledAt <= now + SECOND &&
        !this.#turnsAway(limiter, leftOf, partitions, now)
      )
        continue;
      limiter.tokens = left;
      if (limiter.window) this.#spend(limiter, had - left, now);
      limiter.filledAt = laterMark(limiter.filledAt, now);
    }
    for (const partition of partitions) {
      const jobs = admitted.filter((job) => job.partition === partition.key);
      partition.decayed = this.decayedOf(partition, now) + jobs.length * this.#workOf(partition);
      if (partition.probing) partition.probe ??= jobs[0]?.id;
      partition.decayedAt = laterMark(partition.decayedAt, now);
      if (jobs.length > 0) partition.waitsSince = now;
      if (partition.pausedUntil <= now) partition.pausedUntil = Number.NEGATIVE_INFINITY;
      if (partition.heldUntil <= now) partition.heldUntil = Number.NEGATIVE_INFINITY;
    }
    for (const { key } of partitions)
      this.#tell(
        this.lanesOf(key).filter((lane) => partitions.includes(lane) || this.#hasWork(lane.key)),
        now,
      );
  }

  /** After a pass over these: what their gates deny is due after the delay, one after the other until twice that. */
  postpone(keys: readonly string[], now: number): void {
    const { busyDelaySeconds: seconds } = this.settings;
    if (seconds === undefined) return;
    const jobs = keys.filter((key) => this.#isDenied(key, now)).flatMap((key) => this.line(key));
    for (const [place, job] of jobs.sort(inLine).entries()) {
      const quarters = seconds * 4 + Math.floor((place * seconds * 4) / jobs.length);
      job.due = false;
      job.runAt = now + (quarters * SECOND) / 4;
    }
  }

  #isDenied(key: string, now: number): boolean {
    const partition = this.partitions.get(key)!;
    const { limiters, probe } = partition;
    const next = this.line(key)[0];
    if (!next || probe !== undefined) return false;
    return limiters.some((limiter) => {
      const cap = this.#caps.get(limiter);
      if (cap !== undefined && !limiter.shadow) return limiter.inFlight + takesOf(partition, limiter) > cap;
      return !this.#lets(limiter, 1, next.cost, now);
    });
  }

  /** A shared bucket is brought up to date also when one of these waits for it: of all it lacks, it is the first. */
  #turnsAway(
    limiter: Limiter,
    leftOf: ReadonlyMap<Limiter, number>,
    partitions: readonly Partition[],
    now: number,
  ): boolean {
    const lacks = (one: Limiter, cost: number, partition: Partition): boolean => {
      if (one.shadow) return false;
      const tokens = leftOf.get(one);
      if (tokens === undefined) return one.inFlight + takesOf(partition, one) > this.#caps.get(one)!;
      const numbers = this.numbersOf(one, now);
      return numbers.rate! <= 0 || tokens < Math.min(cost, capacityOf(numbers)) - CLOSE;
    };
    const breadth = ({ gate }: Limiter) => ["partition", "key", "policy"].indexOf(gate.scope);
    return (
      this.#scopeOf(limiter) !== "partition" &&
      partitions.some((partition) => {
        const { key, limiters, probe } = partition;
        const next = limiters.includes(limiter) ? this.line(key)[0] : undefined;
        if (!next || probe !== undefined) return false;
        const inOrder = limiters.toSorted((a, b) => breadth(a) - breadth(b));
        return inOrder.find((one) => lacks(one, next.cost, partition)) === limiter;
      })
    );
  }

  /** If the policy has an order, each failure is tried again, after as long as the job ran. */
  retries(ok: boolean | null): boolean {
    return this.settings.order != null && ok === false;
  }

  /** What each run cost beyond what it has paid, or less, at the throttles that its partition has now. */
  #settle(finished: readonly Finish[], now: number): void {
    const differences = new Map<Limiter, { since: number; tokens: number }[]>();
    for (const { id, settled } of finished) {
      if (settled === undefined) continue;
      const { job, admittedAt, forced } = this.inFlight.get(id)!;
      const { limiters, limitsSince } = this.partitions.get(job.partition)!;
      const tokens = settled - job.cost;
      for (const limiter of limiters) {
        const isKnown = !forced && !limiter.shadow && limitsSince <= admittedAt;
        if (limiter.gate.kind === "throttle" && (tokens > 0 || (tokens < 0 && isKnown)))
          differences.set(limiter, [...(differences.get(limiter) ?? []), { since: admittedAt, tokens }]);
      }
    }
    for (const [limiter, all] of differences) {
      if (limiter.window) this.#settleWindow(limiter, all, now);
      else this.#settleBucket(limiter, all, now);
      limiter.filledAt = laterMark(limiter.filledAt, now);
    }
  }

  /**
   * A debt is at most what the bucket gains in its time; a shadow has none. It returns nothing of what it has gained anew since.
   */
  #settleBucket(limiter: Limiter, all: readonly { since: number; tokens: number }[], now: number): void {
    const numbers = this.numbersOf(limiter, now);
    const filling = numbers.rate! > 0 ? Math.max(capacityOf(numbers) / numbers.rate!, 1) : 1;
    const forgets = numbers.per! * SECOND * filling;
    const charge = all.reduce(
      (sum, { since, tokens }) => sum + (tokens < 0 && since <= now - forgets ? 0 : tokens),
      0,
    );
    const gains = Math.max(numbers.rate! > 0 ? numbers.rate! : limiter.numbers.rate!, 0);
    const had = this.tokensOf(limiter, now);
    const least = Math.min(had, limiter.shadow ? 0 : -gains);
    limiter.tokens = between(had - charge, least, Math.max(had, capacityOf(numbers)));
  }

  /** What is returned was never spent; what is charged is spent now. */
  #settleWindow(limiter: Limiter, all: readonly { since: number; tokens: number }[], now: number): void {
    const numbers = this.numbersOf(limiter, now);
    for (const { since, tokens } of all) {
      const paid = limiter.spent.find(({ at }) => at >= since);
      if (tokens > 0 || !paid) continue;
      const cost = Math.max(paid.cost + tokens, 0);
      limiter.spent = limiter.spent.map((one) => (one === paid ? { ...one, cost } : one));
    }
    const charge = all.reduce((sum, { tokens }) => sum + Math.max(tokens, 0), 0);
    const left = leftOfWindow(limiter, numbers, now);
    const most = limiter.shadow ? Math.min(charge, Math.max(left, 0)) : charge;
    if (most > 0) this.#spend(limiter, most, now);
  }

  #spend(limiter: Limiter, cost: number, now: number): void {
    const numbers = this.numbersOf(limiter, now);
    const longest = Math.max(
      ...[numbers, limiter.numbers].map((of) => rememberedOf(limiter, of, now)),
      longestOf(limiter, now),
    );
    limiter.spent = spend(limiter.spent, lengthOf(limiter, numbers, now), longest, cost, now);
  }

  release(finished: readonly Finish[], now: number): void {
    this.#settle(finished, now);
    const before = new Map([...this.limiters.values()].map((limiter) => [limiter, limiter.inFlight]));
    for (const { id, ok, lagMs, seconds } of finished) {
      const { job, limiters, slots, admittedAt, work } = this.inFlight.get(id)!;
      this.inFlight.delete(id);
      if (this.retries(ok)) {
        const runAt = now + seconds * SECOND;
        const sortAt = this.settings.order === "strict" ? Number.NEGATIVE_INFINITY : job.sortAt;
        this.staged.set(id, { ...job, runAt, due: runAt <= now, ...(sortAt !== undefined && { sortAt }) });
      }
      if (this.settings.fairBy === "work") this.#worked.push({ job, seconds, charged: work });
      if (this.partitions.get(job.partition)!.probe === id) this.#probesEnded.push({ job, ok });
      for (const limiter of limiters) {
        if (limiter.gate.kind !== "throttle") freeSlots(limiter, slots.get(limiter)!);
        if (limiter.gate.kind === "adaptive_concurrency" && ok !== null)
          learn(limiter, this.numbersOf(limiter, now), ok, lagMs, admittedAt, before.get(limiter)!, now);
      }
    }
  }

  /** A worker pool does not run it, because it runs its share: it is where it was before, and its tokens are back. */
  requeue(id: string, now: number): void {
    this.#settle([{ id, ok: null, lagMs: 0, seconds: 0, settled: 0 }], now);
    const { job, limiters } = this.inFlight.get(id)!;
    this.inFlight.delete(id);
    this.staged.set(id, { ...job, runAt: Math.min(job.runAt, now), due: true });
    if (this.partitions.get(job.partition)!.probe === id) this.#probesEnded.push({ job, ok: null });
    for (const limiter of limiters) {
      if (limiter.gate.kind === "throttle") continue;
      freeSlots(limiter, 1);
      if (!limiter.perWorker) continue;
      const seconds = nextDelay(limiter, now);
      limiter.lowered = {
        ...{ cap: limiter.inFlight, seconds, released: limiter.released },
        until: now + seconds * SECOND,
      };
    }
  }

  /** What counts against the share of a partition. Lanes where nobody waits are told late: the one that has the most is right. */
  decayedOf({ key }: Partition, now: number): number {
    return Math.max(...this.lanesOf(key).map((lane) => this.ownDecayedOf(lane, now)));
  }

  #tell(lanes: readonly Partition[], now: number): void {
    for (const lane of lanes) {
      lane.decayed = this.decayedOf(lane, now);
      lane.decayedAt = laterMark(lane.decayedAt, now);
    }
  }

  ownDecayedOf({ decayed, decayedAt }: Partition, now: number): number {
    if (this.settings.halfLifeSeconds === null) return 0;
    return decayed * 0.5 ** (Math.max(now - decayedAt, 0) / SECOND / this.settings.halfLifeSeconds);
  }

  takes(partition: string, limiter: Limiter): number {
    return takesOf(this.partitions.get(partition)!, limiter);
  }

  /** Whether its jobs take more slots than a limit has. */
  isTooDear(key: string, now: number): boolean {
    const partition = this.partitions.get(key)!;
    return partition.limiters.some(
      (limiter) => limiter.gate.byCost && takesOf(partition, limiter) > this.capOf(limiter, now),
    );
  }

  isStopped({ pausedUntil, heldUntil }: Partition, now: number): boolean {
    return Math.max(pausedUntil, heldUntil, this.pausedUntil) > now;
  }

  /**
   * Partitions that wait although their next job could go: none, once nothing moves any more. At a shared throttle, or at slots,
   * those behind a job too dear for now wait with it; and a job whose time comes while its partition waits is seen when
   * that is over. `kept` names the limiters that keep a slot for one partition: others must do without it.
   */
  idle(now: number, kept: ReadonlyMap<string, string> = new Map()): string[] {
    const heads = new Map<Partition, Job>();
    const nextOf = ({ key }: Partition) => {
      const jobs = [...this.staged.values()].filter((job) => job.partition === key).sort(inLine);
      return this.#begunOf(key) ?? jobs.find((job) => job.due) ?? jobs.find((job) => job.runAt <= now);
    };
    for (const partition of this.partitions.values()) {
      const next = nextOf(partition);
      const others = this.settings.order === "strict" ? this.lanesOf(partition.key) : [];
      const first = others.flatMap((lane) => nextOf(lane) ?? []).sort(inLine)[0] ?? next;
      if (!next || first !== next || (!next.due && next.runAt > now)) continue;
      if (!this.isStopped(partition, now) && partition.probe === undefined) heads.set(partition, next);
    }
    const full = new Set<Limiter>();
    for (const [partition, next] of heads)
      for (const limiter of partition.limiters)
        if (
          !this.#lets(limiter, 1, next.cost, now, takesOf(partition, limiter)) &&
          (limiter.gate.kind === "throttle" ||
            (limiter.gate.byCost && takesOf(partition, limiter) <= this.capOf(limiter, now))) &&
          this.#scopeOf(limiter) !== "partition"
        )
          full.add(limiter);
    return [...heads]
      .filter(([partition, next]) =>
        partition.limiters.every((limiter) => {
          const other = kept.get(limiter.name) ?? partition.key;
          const slots =
            takesOf(partition, limiter) +
            (other === partition.key ? 0 : takesOf(this.partitions.get(other)!, limiter));
          const rank = other === partition.key ? 1 : 2;
          return this.#lets(limiter, rank, next.cost, now, slots) && !full.has(limiter);
        }),
      )
      .map(([{ key }]) => key);
  }
}

/** What a partition is called where its jobs name these keys and take so many slots. It is its own name where no gate asks. */
export function laneOf(partition: string, gates: readonly TestGate[], takes = 1): string {
  const keys = gates.filter(({ scope }) => scope === "key").map((gate) => gate.keyOf(partition));
  const slots = gates.some(({ byCost }) => byCost) ? [`${takes} slots`] : [];
  return [partition, ...keys, ...slots].join(" in ");
}

function partitionOf(lane: string): string {
  return lane.split(" in ")[0]!;
}

export function limiterName(gate: string, key: string): string {
  return key === "" ? gate : `${gate} of ${key}`;
}

export function capacityOf({ rate, burst }: Numbers): number {
  return Math.max(burst ?? rate ?? 0, 1);
}

/** Where a bucket stops filling: a smooth one makes up for passes that come up to a quarter of a second late. */
function fullOf({ smooth }: Limiter, numbers: Numbers): number {
  const late = smooth && numbers.burst === 1 ? Math.min((numbers.rate! * 0.25) / numbers.per!, 0.9) : 0;
  return capacityOf(numbers) + late;
}

function newPartition(key: string, now: number): Partition {
  const never = Number.NEGATIVE_INFINITY;
  return {
    key,
    weight: 1,
    plan: undefined,
    cheapest: 1,
    limiters: [],
    takes: 1,
    limits: undefined,
    limitsSince: never,
    admittedAt: never,
    decayed: 0,
    decayedAt: now,
    meanWork: undefined,
    pausedUntil: never,
    heldUntil: never,
    probing: false,
    probe: undefined,
    waitsSince: undefined,
  };
}

function newLimiter(name: string, gate: TestGate, key: string, now: number): Limiter {
  const { numbers } = gate;
  return {
    ...{ name, gate, key, numbers, inFlight: 0 },
    ...{ tokens: capacityOf(numbers), filledAt: now, window: windowOf(gate), spent: [] },
    ...{
      smooth: gate.smooth === true,
      shadow: gate.shadow === true,
      perWorker: gate.perWorker === true,
      released: 0,
      lowered: undefined,
      longest: 0,
      longestUntil: Number.NEGATIVE_INFINITY,
    },
    ...{ learnt: numbers.initial_max ?? 0, lag: 0, decreasedAt: Number.NEGATIVE_INFINITY },
  };
}

function freeSlots(limiter: Limiter, slots: number): void {
  limiter.inFlight -= slots;
  limiter.released += slots;
}

function takesOf({ takes }: Partition, { gate }: Limiter): number {
  return gate.byCost ? takes : 1;
}

/** One more when the time is over, then two, four and so on. */
function loweredCap({ lowered }: Limiter, now: number): number {
  if (!lowered || lowered.until > now + 2 * SECOND) return Number.POSITIVE_INFINITY; // a clock was ahead
  if (now < lowered.until) return lowered.cap;
  const doublings = Math.floor((now - lowered.until) / SECOND / lowered.seconds);
  return lowered.cap + 2 ** Math.min(doublings, 31);
}

/** Twice as long while jobs keep coming back, up to a second, and half as long if one has ended since. */
function nextDelay({ lowered, released }: Limiter, now: number): number {
  const least = 0.02;
  if (!lowered) return least;
  const { until, seconds } = lowered;
  if (now > until + 10 * seconds * SECOND || until > now + 2 * SECOND) return least;
  return released > lowered.released + 1 ? Math.max(seconds / 2, least) : Math.min(seconds * 2, 1);
}

function leftOfWindow(limiter: Limiter, numbers: Numbers, now: number): number {
  const counts = limiter.spent.filter(({ at }) => at > now - lengthOf(limiter, numbers, now));
  return capacityOf(numbers) - counts.reduce((sum, { cost }) => sum + cost, 0);
}

function windowOf({ sliding, calendar }: TestGate): string | null {
  return calendar ?? (sliding ? "sliding" : null);
}

/** In milliseconds. In a sliding window a rate below one is one in a longer window. */
function lengthOf({ window }: Limiter, { rate, per }: Numbers, now: number): number {
  if (window !== "sliding") return now - beginningOf(window!, now) + 0.001; // with its beginning
  return (rate! > 0 && rate! < 1 ? per! / rate! : per!) * SECOND;
}

/** A calendar window knows the one before, too. */
function rememberedOf(limiter: Limiter, numbers: Numbers, now: number): number {
  return limiter.window === "sliding" ? lengthOf(limiter, numbers, now) : 2 * numbers.per! * SECOND;
}

/** Of the calendar's unit that `now` is in. Both zones keep their offset. */
function beginningOf(window: string, now: number): number {
  const [unit, zone] = window.split(" ");
  const offset = zone === "Asia/Kolkata" ? 5.5 * HOUR : 0;
  const local = new Date(now + offset);
  const day = Math.floor(Number(local) / DAY);
  const monday = day - ((day + 3) % 7); // the first of January 1970 was a Thursday
  const begins: Readonly<Record<string, number>> = {
    minute: Math.floor(Number(local) / MINUTE) * MINUTE,
    hour: Math.floor(Number(local) / HOUR) * HOUR,
    day: day * DAY,
    week: monday * DAY,
    month: Date.UTC(local.getUTCFullYear(), local.getUTCMonth(), 1),
  };
  return begins[unit!]! - offset;
}

function longestOf({ longest, longestUntil }: Limiter, now: number): number {
  return longestUntil > now ? longest : 0;
}

/**
 * Spendings of the same 64th of the window are one, as of the last of them; older ones that a longer window counts, by
 * 64ths of that.
 */
function spend(
  spent: readonly Spending[],
  window: number,
  longest: number,
  cost: number,
  now: number,
): Spending[] {
  const known = spent.filter(({ at }) => at > now - Math.max(window, longest));
  const latest = Math.max(now, ...known.map(({ at }) => at).filter((at) => at <= now + SECOND));
  const all = known.map(({ at, cost }) => ({ at: at > now + SECOND ? now : at, cost }));
  if (cost > 0) all.push({ at: latest, cost });
  const parts = new Map<string, Spending>();
  for (const { at, cost } of all) {
    const counts = at > now - window;
    const part = `${counts} ${Math.floor((at * 64) / (counts ? window : Math.max(window, longest)))}`;
    const other = parts.get(part);
    parts.set(part, { at: Math.max(at, other?.at ?? at), cost: cost + (other?.cost ?? 0) });
  }
  return [...parts.values()].sort((a, b) => a.at - b.at);
}

/** A mark stays when it is up to a second ahead; further ahead it is a wrong clock's. */
function laterMark(mark: number, now: number): number {
  return mark > now + SECOND ? now : Math.max(mark, now);
}

function learn(
  limiter: Limiter,
  numbers: Numbers,
  ok: boolean,
  lagMs: number,
  admittedAt: number,
  wasInFlight: number,
  now: number,
): void {
  const alpha = numbers.ewma_alpha!;
  limiter.lag = (1 - alpha) * limiter.lag + alpha * lagMs;
  const shrinks = !ok || limiter.lag > numbers.target_lag_ms!;
  // a decrease ahead of now is a wrong clock's, and ends no round
  const isNewRound = admittedAt > limiter.decreasedAt || limiter.decreasedAt > now + SECOND;
  if (shrinks && isNewRound) {
    const factor = ok ? numbers.overload_decrease_factor! : numbers.failure_decrease_factor!;
    limiter.learnt = Math.floor(limiter.learnt * factor);
    limiter.decreasedAt = now;
  } else if (!shrinks && wasInFlight >= limiter.learnt / 2) {
    limiter.learnt += 1;
  }
  limiter.learnt = between(limiter.learnt, numbers.min!, numbers.max);
}

function between(value: number, least: number, most: number | null | undefined): number {
  return Math.min(Math.max(value, least), most ?? Number.POSITIVE_INFINITY);
}

/** Infinities are equal to themselves. */
function compare(a: number, b: number): number {
  return a === b ? 0 : a - b;
}

function inLine(a: Job, b: Job): number {
  if (a.sortAt !== undefined && b.sortAt !== undefined)
    return compare(a.sortAt, b.sortAt) || Number(a.id) - Number(b.id);
  if (a.sortAt !== undefined || b.sortAt !== undefined) return a.sortAt === undefined ? 1 : -1;
  return a.priority - b.priority || a.runAt - b.runAt || Number(a.id) - Number(b.id);
}
