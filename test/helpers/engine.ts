// The engine's SQL functions, for tests that decide themselves who does what when.
import type { ExecutionContext } from "ava";
import pg from "pg";
import { overridableFields } from "../../src/gates/index.ts";
import { laneOf, type ResolvedLimit } from "../../src/policy/limits.ts";
import { inside } from "./inside.ts";
import { type LentDatabase, lentDatabase } from "./lent.ts";
import { type Table, table, workerTable } from "./table.ts";
import { until } from "./until.ts";

export { until };

export type Queryable = Pick<pg.Client | pg.Pool, "query">;

/** A gate as a policy would resolve it: plain numbers, and the scope key of each partition. */
export interface TestGate {
  readonly name: string;
  readonly kind: "throttle" | "concurrency" | "adaptive_concurrency";
  readonly scope: "partition" | "key" | "policy";
  readonly numbers: Readonly<Record<string, number | null>>;
  /** A throttle's window. */
  readonly sliding?: boolean;
  /** A calendar window: its unit and time zone, such as "day America/New_York". */
  readonly calendar?: string;
  /** A bucket of one that makes up for late passes. */
  readonly smooth?: boolean;
  /** It holds nothing back. */
  readonly shadow?: boolean;
  /** Its `max` is the share of each worker pool. */
  readonly perWorker?: boolean;
  /** Jobs take several slots of it: as many as they are staged with. */
  readonly byCost?: boolean;
  keyOf(partition: string): string;
}

interface ScopeOptions {
  readonly name?: string;
  /** Default "partition"; a function gives the scope key of a partition. */
  readonly scope?: "partition" | "policy" | ((partition: string) => string);
}

export function concurrency(max: number, options: ScopeOptions = {}): TestGate {
  return gate("concurrency", { max }, options);
}

/** Slots of which jobs take as many as they are staged with. */
export function slots(max: number, options: ScopeOptions = {}): TestGate {
  return { ...concurrency(max, options), byCost: true };
}

/** The share of each worker pool. */
export function share(max: number, options: ScopeOptions = {}): TestGate {
  return { ...concurrency(max, options), perWorker: true };
}

export function throttle(
  rate: number,
  { per = 1, burst = null, ...options }: ScopeOptions & { per?: number; burst?: number | null } = {},
): TestGate {
  return gate("throttle", { rate, per, burst }, options);
}

export function sliding(
  rate: number,
  { per = 1, ...options }: ScopeOptions & { per?: number } = {},
): TestGate {
  return { ...throttle(rate, { per, ...options }), sliding: true };
}

const UNIT_SECONDS = { minute: 60, hour: 3600, day: 86_400, week: 604_800, month: 2_592_000 };

/** A month that does not end while a test runs: it is day there. */
export const MONTH = `month ${new Date().getUTCHours() < 12 ? "Asia/Tokyo" : "America/New_York"}`;

/** A unit and a time zone, such as "day America/New_York". */
export function calendar(rate: number, window: string, options: ScopeOptions = {}): TestGate {
  const per = UNIT_SECONDS[window.split(" ")[0] as keyof typeof UNIT_SECONDS];
  return { ...throttle(rate, { per, ...options }), calendar: window };
}

export function smooth(
  rate: number,
  { per = 1, ...options }: ScopeOptions & { per?: number } = {},
): TestGate {
  return { ...throttle(rate, { per, burst: 1, ...options }), smooth: true };
}

export function adaptive(
  initialMax: number,
  {
    min = 1,
    max = null,
    targetLagMs = 100,
    ...options
  }: ScopeOptions & { min?: number; max?: number | null; targetLagMs?: number } = {},
): TestGate {
  const numbers = { initial_max: initialMax, min, max, target_lag_ms: targetLagMs };
  const factors = { ewma_alpha: 0.5, failure_decrease_factor: 0.5, overload_decrease_factor: 0.95 };
  return gate("adaptive_concurrency", { ...numbers, ...factors }, options);
}

function gate(
  kind: TestGate["kind"],
  numbers: TestGate["numbers"],
  { name = kind, scope = "partition" }: ScopeOptions,
): TestGate {
  if (typeof scope === "function") return { name, kind, numbers, scope: "key", keyOf: scope };
  return { name, kind, numbers, scope, keyOf: (partition) => (scope === "partition" ? partition : "") };
}

export interface EngineOptions {
  readonly gates: readonly TestGate[];
  readonly policy?: string;
  readonly halfLifeSeconds?: number | null;
  readonly fairBy?: "jobs" | "work";
  readonly batchSize?: number;
  readonly budget?: number | null;
  /** For "strict" the gates must have a concurrency of 1 over the partition. */
  readonly order?: "strict" | "deadline" | null;
  readonly breaker?: { failures: number; withinSeconds: number; cooldownSeconds: number };
  readonly maxPending?: object;
  readonly uniqueForSeconds?: number;
  /** After so many seconds of its run a job is cancelled by a newer one of its key. Default: none is. */
  readonly cancelsAfterSeconds?: number;
  /** Jobs that meet their gates busy are postponed by so much. Default: they wait. */
  readonly busyDelaySeconds?: number;
  /** Keeps the passes to the ahead bound: a number of jobs, or a time. Default: gates alone decide. */
  readonly ahead?: number | { readonly seconds: number };
  /** Tasks beside the one of the policy's name. */
  readonly otherTasks?: readonly string[];
  /** In seconds. */
  readonly slotTimeout?: number;
  /** The shard of a partition. Default: all are in one. */
  shardOf?(partition: string): string;
  /** The context of a partition. Default: none. */
  contextOf?(partition: string): object;
  /** Where the payload has the partition key, so that SQL can work it out. Default: JavaScript must. */
  readonly keyPath?: string;
}

export interface StageOptions {
  /** Who stages: a session inside a transaction, say. Default: the pool. */
  readonly as?: Queryable;
  /** Limits other than the policy's. */
  readonly gates?: readonly TestGate[];
  /** Default: the one of the policy's name. */
  readonly task?: string;
  readonly jobKey?: string;
  /** Its own, in seconds; null: it cancels no older job of its key. Default: what the policy says. */
  readonly cancelsAfter?: number | null;
  readonly queueName?: string;
  readonly flags?: readonly string[];
  readonly runAt?: Date;
  readonly expiresAt?: Date;
  /** In seconds, both: it is debounced. */
  readonly wait?: number;
  readonly maxWait?: number;
  readonly deadline?: Date;
  readonly priority?: number;
  readonly cost?: number;
  /** How many slots of gates made by {@link slots} it takes, of all or by name. Default: one. */
  readonly takes?: number | Readonly<Record<string, number>>;
  readonly weight?: number;
  readonly shard?: string;
  readonly context?: object;
}

export interface Admitted {
  /** How many arrivals it routed; -1: another router was at work; null: it left all to the router, or was not to route. */
  readonly routed: number | null;
  readonly claimed: number;
  /** Limiters at which it looked for good. */
  readonly served: number;
  readonly admitted: number;
  readonly denied: Record<string, number>;
  readonly quarantined: number;
  readonly next_eligible_at: Date | null;
}

export interface Finished {
  readonly job: string;
  readonly ok?: boolean | null;
  readonly lagMs?: number;
  readonly durationMs?: number | null;
  readonly admission?: string;
  readonly attempt?: number;
  readonly retry?: object;
  /** What its run cost. */
  readonly settled?: { cost?: number; gates?: Record<string, number> };
}

/** A database for the test alone, with one declared policy. Its sessions are freed with it, locks and all. */
export async function engine(t: ExecutionContext, options: EngineOptions): Promise<Engine> {
  const database = await lentDatabase(t);
  const world = new Engine(database.url, database.pool, options, database);
  await world.declare();
  return world;
}

type Lender = Pick<LentDatabase, "session" | "giveBack">;

/** What happened reaches the history, groups and keys, as it does with the next tick of a loop. */
export async function readEvents(queryable: Queryable): Promise<void> {
  await queryable.query(
    "select e.* from dispatch_policy_internal.policies p, dispatch_policy_internal._consume_events(p.name, true) e",
  );
}

export class Engine {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly policy: string;
  readonly #options: EngineOptions;
  readonly #lender: Lender | undefined;
  readonly #sessions: pg.Client[] = [];

  /** `lender`: where sessions come from. Default: it makes them, and `endSessions` ends them. */
  constructor(url: string, pool: pg.Pool, options: EngineOptions, lender?: Lender) {
    this.url = url;
    this.pool = pool;
    this.#lender = lender;
    this.policy = options.policy ?? "p";
    this.#options = options;
  }

  get #bounded(): boolean {
    return this.#options.ahead !== undefined;
  }

  async declare(): Promise<void> {
    const { halfLifeSeconds = 60, batchSize = 100, budget = null } = this.#options;
    const {
      breaker = null,
      maxPending = null,
      fairBy = "jobs",
      order = null,
      ahead,
      keyPath,
      busyDelaySeconds,
    } = this.#options;
    const gates = this.#options.gates.map((gate, position) => {
      const { name, kind, scope, numbers } = gate;
      const values = { ...numbers, ...windowOf(gate) };
      const isClosed = (column: string) =>
        (column === "burst" && (gate.sliding || gate.calendar)) || (column === "per" && gate.calendar);
      const overrides = Object.values(overridableFields)
        .filter(({ column }) => column in numbers && !isClosed(column))
        .map(({ column, override }) => [column, override]);
      return {
        ...{ name, kind, scope, position, values, constants: values },
        overrides: Object.fromEntries(overrides),
      };
    });
    const definition = {
      ...{
        name: this.policy,
        tasks: [this.policy, ...(this.#options.otherTasks ?? [])],
        version: 0,
        enabled: true,
        gates,
      },
      ...{ weight: 1, cost: 1, shard: null, partitionPaths: keyPath ? [keyPath] : null },
      resolvesInSql: keyPath !== undefined,
      ...{ job: {}, retries: "restage", breaker, maxPending, fairBy, order, functions: {} },
      slotTimeoutSeconds: this.#options.slotTimeout ?? null,
      perWorker: this.#options.gates.some(({ perWorker }) => perWorker),
      ...(this.#options.gates.some(({ byCost }) => byCost) && { byCost: true }),
      uniqueForSeconds: this.#options.uniqueForSeconds ?? null,
      cancelsAfterSeconds: this.#options.cancelsAfterSeconds ?? null,
      whenBusy: busyDelaySeconds === undefined ? "wait" : "delay",
      busyDelaySeconds: busyDelaySeconds ?? null,
    };
    const settings = {
      ...{ halfLifeSeconds, admissionBatchSize: batchSize, tickAdmissionBudget: budget },
      ...{ ahead: { jobs: null, seconds: null, ...(typeof ahead === "number" ? { jobs: ahead } : ahead) } },
    };
    await this.pool.query("select dispatch_policy_internal._declare_policy($1, $2, $3, clock_timestamp())", [
      JSON.stringify(definition),
      "hash",
      JSON.stringify(settings),
    ]);
  }

  /** Stages a job in each of these partitions, in order, in one call. Returns the staged ids. */
  async stage(partitions: string | readonly string[], options: StageOptions = {}): Promise<string[]> {
    const text = "select id from dispatch_policy_internal._stage($1, 'replace') order by n";
    const { rows } = await (options.as ?? this.pool).query(text, [
      JSON.stringify([this.batch([partitions].flat(), options)]),
    ]);
    return rows.map(({ id }) => id);
  }

  /** Adds a job in a call that is a transaction of its own. It goes at once if it may, and a tick loop leads. */
  async addAlone(
    partition: string,
    { now = null, as = this.pool, ...options }: StageOptions & { readonly now?: Date | null } = {},
  ): Promise<{ id: string; admitted: boolean }> {
    const { partitions, jobs } = this.batch([partition], options) as { partitions: object; jobs: object };
    const batch = [this.policy, JSON.stringify(partitions), JSON.stringify(jobs)];
    if (now !== null) {
      const text = "select id, admitted from dispatch_policy_internal._admit_at_once($1, 0, $2, $3, $4)";
      const [row] = await inside(as, text, [...batch, now]);
      if (row) return row;
    }
    const text = "select id, admitted from dispatch_policy.enqueue($1, 0, $2, $3, 'replace', $4)";
    return (await as.query(text, [...batch, now === null])).rows[0];
  }

  /** A tick loop leads this shard until then. Default: for as long as a lease may run. */
  async isLed(shard = "default", until?: Date): Promise<void> {
    await this.pool.query(
      `insert into dispatch_policy_internal.leases (policy, shard, holder, expires_at)
       values ($1, $2, 'loop', coalesce($3, clock_timestamp() + interval '29 seconds'))
       on conflict (policy, shard) do update set expires_at = excluded.expires_at`,
      [this.policy, shard, until ?? null],
    );
  }

  /** What {@link stage} sends. */
  batch(partitions: readonly string[], options: StageOptions = {}): object {
    const {
      gates = this.#options.gates,
      jobKey,
      cancelsAfter,
      queueName,
      flags,
      task = this.policy,
      runAt,
      expiresAt,
      wait,
      maxWait,
      deadline,
      priority,
      cost,
      takes = 1,
      weight = 1,
      shard,
      context,
    } = options;
    const keys = [...new Set(partitions)];
    const place = new Map(keys.map((key, index) => [key, index]));
    return {
      policy: this.policy,
      version: 0,
      partitions: keys.map((key) => {
        const of = shard ?? this.#options.shardOf?.(key) ?? "default";
        const its = context ?? this.#options.contextOf?.(key) ?? {};
        const limits = limitsOf(gates, key, takes);
        return {
          key,
          lane: laneOf(limits as ResolvedLimit[], weight ?? 1),
          shard: of,
          context: its,
          weight,
          limits,
        };
      }),
      jobs: partitions.map((key, n) => {
        const byDeadline = this.#options.order === "deadline" || undefined;
        const times = { runAt, wait, maxWait, expiresAt, deadline, byDeadline };
        const named = { jobKey, cancelsAfter, queueName, flags };
        return { n, task, p: place.get(key), ...named, ...times, priority, cost };
      }),
    };
  }

  /** -1: another router is at work; else how many arrivals were consumed. */
  async route(as: Queryable = this.pool, { most = 10_000 } = {}): Promise<number> {
    const { rows } = await as.query("select dispatch_policy_internal._route($1, null, $2) as n", [
      this.policy,
      most,
    ]);
    return rows[0].n;
  }

  async admit({
    as = this.pool,
    claim = 50,
    now = null,
    shard = "default",
    routes = false,
    bounded = this.#bounded,
  }: {
    as?: Queryable;
    claim?: number;
    now?: Date | null;
    shard?: string;
    /** It routes few arrivals before. */
    routes?: boolean;
    bounded?: boolean;
  } = {}): Promise<Admitted> {
    const { rows } = await as.query(
      "select * from dispatch_policy_internal._admit($1, $2, $3, $4, $5, true, $6)",
      [this.policy, shard, claim, now, bounded, routes],
    );
    return rows[0];
  }

  /** Routes and admits, `count` times over. Returns how many jobs were admitted. */
  async passes(count = 1, claim = 50): Promise<number> {
    let admitted = 0;
    for (let pass = 0; pass < count; pass++) {
      await this.route();
      admitted += (await this.admit({ claim })).admitted;
    }
    return admitted;
  }

  /** Frees the slots of these jobs, or passes them on. Returns those that are dealt with. */
  async release(
    jobs: readonly (string | Finished)[],
    as: Queryable = this.pool,
    { passesOn = false } = {},
  ): Promise<string[]> {
    const finished = jobs.map((job) => ({ ok: true, ...(typeof job === "string" ? { job } : job) }));
    const { rows } = await as.query("select left_ids from dispatch_policy_internal._release($1, null, $2)", [
      JSON.stringify(finished),
      passesOn,
    ]);
    const { left_ids } = rows[0];
    return [...new Set(finished.map(({ job }) => job))].filter((job) => !left_ids.includes(job));
  }

  /** Completes these jobs in Graphile Worker, and releases them. */
  async finish(jobIds: readonly string[]): Promise<string[]> {
    await this.pool.query("select graphile_worker.complete_jobs($1)", [jobIds]);
    return this.release(jobIds);
  }

  /** Graphile Worker's ids of the jobs in flight, oldest first. */
  async inFlight(partition?: string): Promise<string[]> {
    const text = `select job_id from dispatch_policy.in_flight_jobs
      where $1::text is null or partition = $1 order by job_id`;
    const { rows } = await this.pool.query(text, [partition]);
    return rows.map(({ job_id }) => job_id);
  }

  /** The partitions of the jobs admitted at this time. */
  async admittedAt(now: Date): Promise<string[]> {
    const text =
      "select partition from dispatch_policy.in_flight_jobs where admitted_at = $1 order by job_id";
    const { rows } = await this.pool.query(text, [now]);
    return rows.map(({ partition }) => partition);
  }

  /** How many jobs are staged. */
  async staged(partition?: string): Promise<number> {
    return this.number(
      "select count(*)::int from dispatch_policy.staged_jobs where $1::text is null or partition = $1",
      [partition],
    );
  }

  /** One of the engine's tables, for what no verb does and no view shows. */
  table(name: string, as: Queryable = this.pool): Table {
    return table(as, name);
  }

  /** A row of partitions. */
  // biome-ignore lint/suspicious/noExplicitAny: a row of any shape
  async partition(key: string): Promise<any> {
    return this.table("partitions").one({ key });
  }

  /** A row of limiters; without a key the gate's only one. */
  // biome-ignore lint/suspicious/noExplicitAny: a row of any shape
  async limiter(gate: string, key?: string): Promise<any> {
    return this.table("limiters").one({ gate, ...(key !== undefined && { scope_key: key }) });
  }

  /** Brings other limits to a partition without a job, as an operator who refreshes its context. */
  async relimit(key: string, gates: readonly TestGate[]): Promise<void> {
    const { id } = await this.partition(key);
    const limits = JSON.stringify(limitsOf(gates, key));
    await this.table("arrivals").add({
      policy: this.policy,
      partition_id: id,
      key,
      context: "{}",
      weight: 1,
      limits,
    });
  }

  /** What happened reaches the history, groups and keys, as it does with the next tick of a loop. */
  readEvents(): Promise<void> {
    return readEvents(this.pool);
  }

  /** The counts with which callbacks of groups were added, wherever those are now. */
  async groupCounts(): Promise<Record<string, number>[]> {
    await this.readEvents();
    const jobs = [...(await this.table("staged_jobs").all()), ...(await workerTable(this.pool).all())];
    return jobs.flatMap(({ payload }) => payload._group ?? []);
  }

  async number(text: string, values: unknown[] = []): Promise<number> {
    const { rows } = await this.pool.query({ text, values, rowMode: "array" });
    return rows[0]?.[0];
  }

  /** Releases and admits until nothing is staged and nothing in flight. Returns the jobs that finished. */
  async drain(): Promise<number> {
    let finished = 0;
    for (let idle = 0; idle < 20; ) {
      const jobs = await this.inFlight();
      await this.finish(jobs);
      finished += jobs.length;
      const admitted = await this.passes();
      idle = jobs.length + admitted === 0 ? idle + 1 : 0;
      if (idle > 0 && (await this.staged()) === 0) break;
    }
    return finished;
  }

  /** What is left behind, by what it is; all 0 once everything is drained and two more passes went by. */
  async leftovers(): Promise<Record<string, number>> {
    await this.passes(2);
    const { rows } = await this.pool.query(`select
      (select count(*)::int from dispatch_policy_internal.staged_jobs) as staged,
      (select count(*)::int from dispatch_policy_internal.arrivals) as arrivals,
      (select count(*)::int from dispatch_policy_internal.in_flight_jobs) as in_flight,
      (select count(*)::int from dispatch_policy_internal.limiters where in_flight <> 0) as counters,
      (select count(*)::int from dispatch_policy_internal.limiters where reserved_for is not null) as reserved,
      (select count(*)::int from dispatch_policy_internal.freed) as notes,
      (select count(*)::int from dispatch_policy_internal.partitions where blocked_on is not null) as blocked`);
    return rows[0];
  }

  /** Limiters and partitions whose counters differ from the rows that they count. */
  async wrongCounters(): Promise<number> {
    return this.number(`select ((
      select count(*) from dispatch_policy_internal.limiters l where l.in_flight <> (
        select count(*) from dispatch_policy_internal.in_flight_jobs f, unnest(f.limiter_ids) u (id) where u.id = l.id))
      + (select count(*) from (${WRONGLY_STAGED}) w))::int`);
  }

  /** A connection of its own, which a test can leave inside a transaction. */
  async session(): Promise<Session> {
    const client = await (this.#lender?.session() ?? this.#makeSession());
    const { rows } = await client.query("select pg_backend_pid() as pid");
    return Object.assign(client, { pid: rows[0].pid as number });
  }

  async #makeSession(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: this.url });
    client.on("error", () => {});
    await client.connect();
    this.#sessions.push(client);
    return client;
  }

  /** Ends a session before the test does. Another session may get its connection. */
  async end(session: Session): Promise<void> {
    await (this.#lender?.giveBack(session) ?? session.end());
  }

  async endSessions(): Promise<void> {
    await Promise.all(this.#sessions.map((session) => session.end().catch(() => {})));
  }

  /** Passes and releases wait for locks for as long as a test takes: on a busy machine longer than they would. */
  async waitsLong(): Promise<void> {
    const hand = ["_add_what_passes", "_unstage_what_passes"];
    for (const name of [
      "_adopt",
      "_end_or_postpone",
      "_admit_start",
      "_lock_limiters_soon",
      "_lock_to_settle",
      "_park",
      "_pass_slots_on",
      "_release",
      ...hand,
    ])
      await this.pool.query(`alter function dispatch_policy_internal.${name} set lock_timeout = 0`);
  }

  /** Resolves once this session waits for another one's lock. */
  async waitsForLock(session: Session): Promise<void> {
    await until(`session ${session.pid} waits for a lock`, async () => {
      const count = await this.number("select cardinality(pg_blocking_pids($1))", [session.pid]);
      return count > 0;
    });
  }
}

/** Partitions whose count of staged jobs is wrong: what routing and passes have counted, and what waits for the router. */
export const WRONGLY_STAGED = `select c.id, sum(c.counted) as counted, sum(c.staged) as staged from (
    select q.id, q.staged as counted, 0 as staged from dispatch_policy_internal.partitions q
    union all select a.partition_id, a.jobs, 0 from dispatch_policy_internal.arrivals a
    union all select s.partition_id, 0, 1 from dispatch_policy_internal.staged_jobs s where s.partition_id is not null
  ) c group by c.id having sum(c.counted) <> sum(c.staged)`;

export type Session = pg.Client & { readonly pid: number };

function limitsOf(
  gates: readonly TestGate[],
  partition: string,
  takes: Exclude<StageOptions["takes"], undefined> = 1,
): object[] {
  return gates.map((gate, position) => {
    const { name, kind, scope, numbers, keyOf, byCost } = gate;
    return {
      gate: name,
      kind,
      scope,
      position,
      ...(scope === "key" && { key: keyOf(partition) }),
      ...(byCost && { cost: typeof takes === "number" ? takes : (takes[name] ?? 1) }),
      ...numbers,
      ...windowOf(gate),
    };
  });
}

function windowOf({ sliding, calendar, smooth, shadow, perWorker }: TestGate): object {
  const kept = {
    ...(smooth && { smooth }),
    ...(shadow && { shadow }),
    ...(perWorker && { per_worker: true }),
  };
  return { ...(sliding && { sliding }), ...(calendar && { calendar }), ...kept };
}
