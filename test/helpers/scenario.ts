// The world of an acceptance scenario: a database, utils and one policy, through the public API, the SQL functions
// without underscore and the views only.
import type { ExecutionContext } from "ava";
import type { Job, RunnerOptions, Task, TaskList, WorkerEvents } from "graphile-worker";
import { run, WorkerPreset } from "graphile-worker";
import type pg from "pg";
import type {
  AddedJob,
  AnyPolicy,
  DispatchPolicyOptions,
  JobSpec,
  PolicyOptions,
  PolicyUtils,
} from "../../src/index.ts";
import { type concurrency, definePolicy, dispatchPolicyPreset, makePolicyUtils } from "../../src/index.ts";
import { type LentDatabase, lentDatabase } from "./lent.ts";
import { silent } from "./silent.ts";
import { until } from "./until.ts";

/** True: scenarios with time run as long as they are written; otherwise for a few seconds. */
export const FULL = process.env.SCENARIO_FULL === "1";

/** What limits, keys and weights of a scenario's policy can read; a payload may leave out all but `key`. */
export type Ctx = Required<Payload>;
export type Payload = {
  key: string | number;
  account?: string | number;
  shard?: string;
  weight?: number;
  cost?: number;
  max?: number;
  rate?: number;
};

type Words = Partial<PolicyOptions<string, undefined, Ctx>>;
type Settings = Omit<DispatchPolicyOptions, "policies">;

export interface ScenarioOptions {
  /** Beside the scenario's own. */
  readonly others?: readonly AnyPolicy[];
  /** Who ticks: `utils.tick`, or the SQL function `tick`. */
  readonly via?: Via;
  /** Where stepped times start. */
  readonly clock?: Clock;
  /** Options of the preset. */
  readonly settings?: Settings;
}

export type Via = "utils" | "sql";
export const VIAS: readonly Via[] = ["utils", "sql"];

/**
 * `soon`: a little ahead, so that whatever the test stages later is due. `now`: the clock in JavaScript when it is
 * first asked. `past`: jobs are staged with a `runAt` before that.
 */
export type Clock = "soon" | "now" | "tomorrow" | "past";
export const CLOCKS: readonly Clock[] = ["soon", "now", "tomorrow", "past"];

const STARTS: Record<Clock, () => number> = {
  soon: () => Date.now() + 30_000,
  now: () => Date.now(),
  tomorrow: () => Date.now() + 86_400_000,
  past: () => Date.parse("2020-02-29T12:00:00Z"),
};

export interface Pass {
  claimed: number;
  admitted: number;
  denied: Record<string, number>;
  dropped: number;
  nextEligibleAt: Date | null;
}

/** A policy named `name` from a few words. Unless said: keyed by `key`, one of everything, batch 100, half-life 60 s. */
export function policyOf(name: string, words: Words = {}): AnyPolicy {
  const { tasks, ...rest } = words;
  return definePolicy(name, {
    ...(tasks ? { tasks } : {}),
    context: (payload: unknown): Ctx => {
      const { key, ...given } = payload as Payload;
      return { key, account: key, shard: "default", weight: 1, cost: 1, max: 1, rate: 1, ...given };
    },
    partitionBy: (ctx: Ctx) => ctx.key,
    shardBy: (ctx: Ctx) => ctx.shard,
    weight: (ctx: Ctx) => ctx.weight,
    cost: (ctx: Ctx) => ctx.cost,
    ...rest,
  } as PolicyOptions<string, undefined, Ctx>);
}

/** A policy that plain SQL can evaluate: keyed by the path `key`, with constant limits. */
export function sqlPolicyOf(
  name: string,
  words: { gates?: readonly ReturnType<typeof concurrency>[] } = {},
): AnyPolicy {
  return definePolicy(name, { partitionBy: "key", ...words });
}

/** The policy is called "p", or is one of your own. */
export async function scenario(
  t: ExecutionContext,
  policy: Words | AnyPolicy = {},
  options: ScenarioOptions = {},
): Promise<Scenario> {
  const database = await lentDatabase(t);
  const own = "~policy" in policy ? (policy as AnyPolicy) : policyOf("p", policy as Words);
  const world = new Scenario(t, database, own, options);
  await world.open();
  return world;
}

export class Scenario {
  readonly t: ExecutionContext;
  readonly url: string;
  readonly pool: pg.Pool;
  readonly own: AnyPolicy;
  readonly policy: string;
  readonly options: ScenarioOptions;
  utils!: PolicyUtils;
  readonly #database: LentDatabase;
  #start: number | undefined;

  constructor(t: ExecutionContext, database: LentDatabase, own: AnyPolicy, options: ScenarioOptions) {
    this.t = t;
    this.url = database.url;
    this.pool = database.pool;
    this.#database = database;
    this.own = own;
    this.policy = own.identifier;
    this.options = options;
  }

  get preset(): GraphileConfig.Preset {
    const { others = [], settings = {} } = this.options;
    return dispatchPolicyPreset({ ...settings, policies: [this.own, ...others] });
  }

  async open(): Promise<void> {
    this.utils = await this.makeUtils();
  }

  /** Utils with connections of their own, as another process would have. */
  async makeUtils(policies?: readonly AnyPolicy[]): Promise<PolicyUtils> {
    const how = policies ? { policies } : { preset: this.preset };
    const utils = await makePolicyUtils({ pgPool: this.connections(6), logger: silent, ...how });
    this.t.teardown(() => utils.release());
    return utils;
  }

  /** The time so many seconds into the scenario. */
  at(seconds: number): Date {
    this.#start ??= STARTS[this.options.clock ?? "soon"]();
    return new Date(this.#start + Math.round(seconds * 1000));
  }

  /** `stage("3@k1 10@k2")`: three jobs in partition k1 and ten in k2, in one call. */
  async stage(words: string, more: Partial<Payload> = {}, spec: JobSpec = {}): Promise<AddedJob[]> {
    const runAt = this.options.clock === "past" ? new Date("2020-02-29T00:00:00Z") : undefined;
    const specs = jobsOf(words).map((key) => {
      return { identifier: this.policy, payload: { key, ...more }, ...(runAt ? { runAt } : {}), ...spec };
    });
    return [...(await this.utils.addJobs(specs as never))];
  }

  /** One pass over the scenario's policy, `seconds` into the scenario. */
  async tick(seconds = 0, shard?: string): Promise<Pass> {
    return this.pass(this.at(seconds), shard);
  }

  /** One pass by the database's clock. */
  async tickNow(shard?: string): Promise<Pass> {
    return this.pass(undefined, shard);
  }

  async pass(now: Date | undefined, shard?: string): Promise<Pass> {
    if (this.options.via === "sql") {
      const [row] = await this.rows("select * from dispatch_policy.tick($1, $2, $3)", [
        this.policy,
        shard ?? null,
        now ?? null,
      ]);
      const {
        claimed,
        admitted,
        denied,
        dropped,
        next_eligible_at: next,
      } = row as never as Pass & {
        next_eligible_at: Date | null;
      };
      return { claimed, admitted, denied, dropped, nextEligibleAt: next };
    }
    return this.utils.tick({ policy: this.policy, ...(shard ? { shard } : {}), ...(now ? { now } : {}) });
  }

  // biome-ignore lint/suspicious/noExplicitAny: rows of any shape
  async rows(text: string, values: unknown[] = []): Promise<any[]> {
    return (await this.pool.query(text, values)).rows;
  }

  /** How many jobs are staged. */
  async staged(partition?: string): Promise<number> {
    const where = "where policy = $1 and ($2::text is null or partition = $2)";
    const [row] = await this.rows(`select count(*)::int as n from dispatch_policy.staged_jobs ${where}`, [
      this.policy,
      partition,
    ]);
    return row.n;
  }

  /** In-flight jobs, in the order they were staged. */
  async inFlight(
    partition?: string,
  ): Promise<{ job_id: string; staged_id: string; partition: string; admitted_at: Date }[]> {
    return this.rows(
      `select * from dispatch_policy.in_flight_jobs where policy = $1 and ($2::text is null or partition = $2)
       order by staged_id`,
      [this.policy, partition],
    );
  }

  /** In-flight jobs by partition. */
  async inFlightBy(): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { partition } of await this.inFlight()) counts[partition] = (counts[partition] ?? 0) + 1;
    return counts;
  }

  /** Completes the oldest in-flight jobs, and has their slots freed. */
  async finish(count: number, partition?: string): Promise<void> {
    const jobs = (await this.inFlight(partition)).slice(0, count);
    await this.utils.completeJobs(jobs.map((job) => job.job_id));
    await this.utils.sweep();
  }

  /** A row of the view `partitions`. */
  // biome-ignore lint/suspicious/noExplicitAny: rows of any shape
  async partition(key: string): Promise<any> {
    const where = "where policy = $1 and partition = $2";
    return (await this.rows(`select * from dispatch_policy.partitions ${where}`, [this.policy, key]))[0];
  }

  /** A row of the view `limiters`; without a key the gate's only one. */
  // biome-ignore lint/suspicious/noExplicitAny: rows of any shape
  async limiter(gate: string, key?: string): Promise<any> {
    const where = "where policy = $1 and gate = $2 and ($3::text is null or scope_key = $3)";
    return (await this.rows(`select * from dispatch_policy.limiters ${where}`, [this.policy, gate, key]))[0];
  }

  /** A pool of its own, until the test ends. */
  connections(max: number): pg.Pool {
    return this.#database.connections(max);
  }

  /** A connection of its own inside a transaction; the test's end rolls it back. */
  async transaction(): Promise<pg.Client> {
    const client = await this.#database.session();
    this.t.teardown(() => this.#database.giveBack(client));
    await client.query("begin");
    return client;
  }

  /** A real worker with the preset. `loop` false: only explicit ticks admit. */
  async worker({
    tasks,
    events,
    loop = true,
    slots = 10,
    settings = {},
    logger = silent,
    ...more
  }: {
    tasks: TaskList;
    events?: WorkerEvents;
    loop?: boolean;
    slots?: number;
    settings?: Settings;
  } & Pick<RunnerOptions, "crontab" | "parsedCronItems" | "logger">): Promise<{ stop(): Promise<void> }> {
    const { others = [] } = this.options;
    const preset = dispatchPolicyPreset({
      ...{ ...this.options.settings, ...settings, loop },
      policies: [this.own, ...others],
    });
    const runner = await run({
      ...more,
      preset: { extends: [WorkerPreset, preset] },
      pgPool: this.connections(10),
      concurrency: slots,
      pollInterval: 1000,
      noHandleSignals: true,
      logger,
      taskList: tasks,
      ...(events ? { events } : {}),
    });
    let stopped: Promise<void> | undefined;
    const stop = () => {
      stopped ??= runner.stop();
      return stopped;
    };
    this.t.teardown(stop);
    return { stop };
  }

  /** A worker whose jobs end when they are told to. */
  async hands(slots = 20, task = this.policy): Promise<Hands> {
    const hands = new Hands(this);
    await this.worker({ tasks: { [task]: hands.task }, loop: false, slots });
    // teardowns run last first: a worker stops once its jobs have ended
    this.t.teardown(() => hands.letGo());
    return hands;
  }
}

/** Jobs in the hands of the test: they run until it says how they end. */
export class Hands {
  readonly #world: Scenario;
  readonly #running = new Map<string, { job: Job; key: string; end(error?: Error): void }>();
  #letGo = false;
  /** Most at once. */
  most = 0;

  constructor(world: Scenario) {
    this.#world = world;
  }

  readonly task: Task = async (payload, { job }) => {
    if (this.#letGo) return;
    try {
      await new Promise<void>((resolve, reject) => {
        const { key } = (Array.isArray(payload) ? payload[0] : payload) as Payload;
        this.#running.set(job.id, {
          job,
          key: String(key),
          end: (error) => (error ? reject(error) : resolve()),
        });
        this.most = Math.max(this.most, this.#running.size);
      });
    } finally {
      this.#running.delete(job.id);
    }
  };

  letGo(): void {
    this.#letGo = true;
    for (const { end } of this.#running.values()) end();
  }

  running(key?: string): Job[] {
    return [...this.#running.values()]
      .filter((one) => key === undefined || one.key === key)
      .map((one) => one.job);
  }

  /** Resolves once so many jobs run. */
  async run(count: number, key?: string): Promise<void> {
    await until(`${count} jobs run`, async () => this.running(key).length >= count);
  }

  /**
   * Ends the jobs that have run longest, each well or by an error. Resolves once their slots are back and Graphile Worker
   * has recorded their ends: it does so beside the release, and may be later.
   */
  async end(count: number, how: "well" | "badly" = "well", key?: string): Promise<void> {
    await this.run(count, key);
    const ending = this.running(key).slice(0, count);
    for (const job of ending)
      this.#running.get(job.id)?.end(how === "badly" ? new Error("badly") : undefined);
    await until("their slots are back", async () => {
      const left = await this.#world.inFlight();
      return !left.some(({ job_id }) => ending.some((job) => job.id === job_id));
    });
    await until("Graphile Worker has recorded their ends", async () => {
      const locked = await this.#world.rows(
        `select from graphile_worker.jobs j
         join unnest($1::bigint[], $2::int[]) ended (id, attempt) on ended.id = j.id and ended.attempt = j.attempts
         where j.locked_at is not null`,
        [ending.map((job) => job.id), ending.map((job) => job.attempts)],
      );
      return locked.length === 0;
    });
  }
}

/** "3@k1 1@k2" as the keys of its jobs. */
export function jobsOf(words: string): string[] {
  return words
    .trim()
    .split(/\s+/)
    .flatMap((word) => {
      const [count = "", key = ""] = word.split("@");
      return Array<string>(Number(count)).fill(key);
    });
}
