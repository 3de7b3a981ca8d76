// Does the same to the engine and to the model, and compares what both say after each step.
import type pg from "pg";
import { asSent } from "../../src/db/releasing.ts";
import { Engine, type StageOptions } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";
import { completeJob, fetchJob, poolLives, requeue, startJob } from "../helpers/native.ts";
import { routineOf } from "../helpers/table.ts";
import { type Case, type GateCase, gateOf, nameOf, type Plan, type Step, stepInWords } from "./cases.ts";
import { capacityOf, type Finish, type Job, laneOf, limiterName, Model } from "./model.ts";

/** Later than any clock, so that a job's time comes when the test says so; jobs due long since are from before. */
const START = Date.UTC(2100, 0, 1);
const LONG_SINCE = Date.UTC(2000, 0, 1);
const MOST_PASSES = 60;
/** The most partitions that a pass claims, by the length of the case: in half of the cases they claim all. */
const CLAIMS = [50, 50, 1, 3];
/** Within it the engine looks again at what it was not sure of. */
const MOMENT_MS = 60;

export interface Target {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly client: pg.Client;
  cases: number;
  /** A job went in the call that added it. */
  onWentAtOnce(): void;
  /** A pass has routed few arrivals. */
  onRoutedFew(): void;
}

export interface RunOptions {
  /** False: no release passes its slots on, and passes claim all: so two runs of a case are equal row by row. */
  readonly passes?: boolean;
  /** Called after each step, with the time of the case. */
  readonly after?: (policy: string, now: Date) => Promise<void>;
}

/** What an override sets: the later numbers; one that goes by context other ones, so that it shows which is in force. */
function setBy(
  { kind, numbers, sliding, calendar }: GateCase,
  plan: Plan | undefined,
): Record<string, number> {
  if (plan !== undefined && kind === "throttle") return { rate: plan === "free" ? 0.5 : 30 };
  if (plan !== undefined && kind === "concurrency") return { max: plan === "free" ? 1 : 6 };
  const later = Object.entries(numbers[1]).filter(
    ([name, value]) =>
      value !== null &&
      !(name === "burst" && (calendar || sliding.includes(true))) &&
      !(name === "per" && calendar),
  );
  return Object.fromEntries(later) as Record<string, number>;
}

/** Where engine and model part. */
/** A partition that waits for a limiter, by its id. */
interface Waiting {
  readonly limiter: string;
  readonly fairKey: number;
}

export class Difference extends Error {}

export async function runCase(target: Target, it: Case, options: RunOptions = {}): Promise<void> {
  target.cases += 1;
  if (target.cases % 50 === 0) await forget(target);
  const run = new Run(target, it, options);
  await run.engine.declare();
  for (const [index, step] of it.steps.entries()) {
    try {
      await run.step(step);
      await options.after?.(run.engine.policy, run.now);
    } catch (error) {
      if (!(error instanceof Difference)) throw error;
      throw new Difference(`step ${index + 1} (${stepInWords(step, it.gates)}): ${error.message}`);
    }
  }
  const failures = await inside(
    target.client,
    "select left_to_pass as it from activity where left_to_pass::text like '%failed: %' limit 1",
  );
  if (failures.length > 0) throw new Difference(`the small way failed: ${JSON.stringify(failures[0].it)}`);
}

/** What earlier cases left behind, so that the last of many is as quick as the first. */
async function forget({ client }: Target): Promise<void> {
  const tables = [
    "partitions",
    "limiters",
    "staged_jobs",
    "arrivals",
    "in_flight_jobs",
    "freed",
    "overrides",
    "activity",
    "workers",
    "superseded_jobs",
  ];
  await client.query(`truncate ${tables.map((table) => `dispatch_policy_internal.${table}`).join(", ")}`);
}

interface Snapshot {
  readonly limiters: readonly {
    name: string;
    key: string;
    tokens: number | null;
    filledAt: number | null;
    inFlight: number;
    learnt: number | null;
    lag: number | null;
    /** The partition for which a slot is kept, and until when. */
    reservedFor: string | null;
    reservedUntil: number | null;
    spent: readonly { at: string; cost: number }[];
  }[];
  readonly partitions: readonly {
    key: string;
    decayed: number;
    decayedAt: number;
    fairKey: number;
    visited: number;
    /** What it counts as staged, and what its arrivals add. */
    staged: number;
  }[];
  readonly staged: readonly { id: string; runAt: number }[];
  readonly inFlight: readonly { job: string; staged: string }[];
  readonly shadowDenied: Readonly<Record<string, number>>;
}

/** The lane that a row `q` of partitions is, as {@link laneOf} names it. */
const LANE = `concat_ws(' in ', q.key, (
  select string_agg(g ->> 'key', ' in ') from jsonb_array_elements(q.limits) g where g ? 'key'), (
  select max(g ->> 'cost') || ' slots' from jsonb_array_elements(q.limits) g))`;

const SNAPSHOT = `select json_build_object(
  'limiters', (select coalesce(json_agg(json_build_object('name', l.gate, 'key', l.scope_key, 'tokens', l.tokens,
      'filledAt', extract(epoch from l.refilled_at) * 1000, 'inFlight', l.in_flight, 'learnt', l.current_max,
      'lag', l.lag_ewma_ms, 'reservedUntil', extract(epoch from l.reserved_until) * 1000,
      'reservedFor', (select ${LANE} from dispatch_policy_internal.partitions q where q.id = l.reserved_for),
      'spent', l.spent)), '[]')
    from dispatch_policy_internal.limiters l where l.policy_id = p.id and l.kind <> 'ahead'),
  'partitions', (select coalesce(json_agg(json_build_object('key', ${LANE}, 'decayed', q.decayed_admits,
      'decayedAt', extract(epoch from q.decayed_at) * 1000, 'fairKey', q.fair_key, 'visited', q.visited, 'staged', q.staged + (select coalesce(sum(a.jobs), 0)
        from dispatch_policy_internal.arrivals a where a.partition_id = q.id)) order by q.key), '[]')
    from dispatch_policy_internal.partitions q where q.policy_id = p.id),
  'staged', (select coalesce(json_agg(json_build_object('id', s.id::text, 'runAt', extract(epoch from s.run_at) * 1000)), '[]')
    from dispatch_policy_internal.staged_jobs s where s.task_identifier = p.name),
  'inFlight', (select coalesce(json_agg(json_build_object('job', f.job_id::text, 'staged', f.staged_id::text)), '[]')
    from dispatch_policy_internal.in_flight_jobs f where f.policy_id = p.id),
  'shadowDenied', (select coalesce(json_object_agg(d.key, d.jobs), '{}') from (
    select e.key, sum(e.value::int) as jobs from dispatch_policy_internal.activity a
    cross join jsonb_each_text(a.shadow_denied) e where a.policy_id = p.id group by e.key) d)
) as it from dispatch_policy_internal.policies p where p.name = $1`;

class Run {
  readonly engine: Engine;
  readonly #case: Case;
  readonly #client: pg.Client;
  readonly #target: Target;
  readonly #model: Model;
  readonly #options: RunOptions;
  readonly #claim: number;
  #now = START;
  #latest = START;
  #routed = 0;
  #turns = 0;
  /** What decided the limits of the jobs since the last routing, as text. */
  readonly #limitsToRoute = new Set<string>();
  #hasEndsToRoute = false;
  #isSlotKept = false;
  #snapshot: Snapshot = { limiters: [], partitions: [], staged: [], inFlight: [], shadowDenied: {} };

  constructor(target: Target, it: Case, options: RunOptions) {
    const { url, pool, client, cases } = target;
    this.#target = target;
    const gates = it.gates.map((gate, index) => gateOf(gate, index, 0, 0));
    this.engine = new Engine(url, pool, { ...it.settings, gates, policy: `case ${cases}` });
    this.#client = client;
    this.#case = it;
    this.#model = new Model(it.settings);
    this.#options = options;
    // of partitions whose fair keys are equal, a small claim has any
    this.#claim = options.passes === false ? 50 : CLAIMS[it.steps.length % CLAIMS.length]!;
  }

  get now(): Date {
    return new Date(this.#now);
  }

  async step(step: Step): Promise<void> {
    switch (step.do) {
      case "add":
        return this.#add(step);
      case "tick":
        await this.#pass();
        return;
      case "settle":
        return this.#settle();
      case "look again":
        return this.#lookAgain();
      case "wait":
        this.#now += step.ms;
        return;
      case "admit":
        return this.#admit(step);
      case "finish":
        return this.#finish(step);
      case "pause":
      case "hold":
      case "resume":
        return this.#stop(step);
      case "pause policy":
        this.#model.pausedUntil = this.#now + step.ms;
        await this.#call("pause(policy => $1, until => $2)", [new Date(this.#model.pausedUntil)]);
        return;
      case "pool":
        return this.#pool(step);
      case "requeue":
        return this.#requeue(step);
      case "resume policy":
        this.#model.pausedUntil = Number.NEGATIVE_INFINITY;
        await this.#call("resume(policy => $1)", []);
        return;
      default:
        return this.#override(step);
    }
  }

  async #add({
    partitions,
    cost,
    priority,
    delayMs,
    weight,
    definition,
    group,
    plan,
    lastsMs,
    deadlineMs,
    takes = 1,
    alone,
  }: Step & {
    do: "add";
  }) {
    if (alone === "at rest") await this.#settle();
    const gates = this.#case.gates.map((gate, index) => gateOf(gate, index, definition, group));
    const runAt = delayMs === null ? LONG_SINCE : this.#now + delayMs;
    const context = plan === undefined ? {} : { plan };
    const expiresAt = lastsMs === undefined ? undefined : Math.max(runAt, this.#now) + lastsMs;
    const options = {
      ...{ as: this.#client, gates, cost, takes, priority, weight, context, runAt: new Date(runAt) },
      ...(expiresAt !== undefined && { expiresAt: new Date(expiresAt) }),
      ...(deadlineMs !== undefined && { deadline: new Date(this.#now + deadlineMs) }),
    };
    const made = (ids: readonly string[], keys: readonly string[]) =>
      ids.map((id, index): Job => {
        return {
          id,
          partition: laneOf(keys[index]!, gates, takes),
          priority,
          runAt,
          cost,
          due: delayMs === null,
          ...(expiresAt !== undefined && { expiresAt }),
          ...(deadlineMs !== undefined && { sortAt: this.#now + deadlineMs }),
        };
      });
    const stage = (jobs: readonly Job[]) => this.#model.stage(jobs, { weight, gates, plan, takes });
    const limits = JSON.stringify({ definition, group, plan, weight });
    if (!alone) {
      this.#limitsToRoute.add(limits);
      stage(made(await this.engine.stage(partitions, options), partitions));
      return;
    }
    for (const key of partitions) {
      const { id, admitted, decayed, first } = await this.#addAlone(key, options);
      if (!admitted) this.#limitsToRoute.add(limits);
      else if (this.#now >= this.#latest)
        same("partitions that it overtakes", this.#model.idle(this.#now).join(" "), "");
      stage(made([id], [key]));
      if (!admitted) continue;
      // it went as in a pass over its partition, and there is nothing to route
      this.#target.onWentAtOnce();
      this.#model.route(this.#now);
      await this.#look();
      this.#follow([laneOf(key, gates, takes)], decayed, first);
    }
  }

  async #addAlone(partition: string, options: StageOptions) {
    const { decayed, first } = await this.#compareDecayed();
    await this.engine.isLed("default", new Date(this.#now + 20_000));
    const { id, admitted } = await this.engine.addAlone(partition, { ...options, now: new Date(this.#now) });
    return { id, admitted, decayed, first };
  }

  /** Routes and admits once. Returns whether anything moved. */
  async #pass(): Promise<boolean> {
    const now = new Date(this.#now);
    this.#latest = Math.max(this.#latest, this.#now);
    if (this.#case.steps.length % 2 === 0) await this.#makePlacesTenths();
    const routed = await this.#route();
    const { decayed, eligible, waiting, ...marked } = await this.#compareDecayed();
    const first = new Set([...marked.first, ...(await this.#calledByWait())]);
    const before = this.#snapshot;
    const { claimed } = await this.engine.admit({ as: this.#client, now, claim: this.#claim });
    await this.#look();
    const keys = this.#visitedSince(before);
    same("partitions claimed", claimed, keys.length);
    const called = keys.filter((key) => !eligible.has(key));
    this.#checkClaim(keys, eligible, waiting);
    this.#checkLine(called, keys, waiting);
    // who waits beside them at a gate by cost may be called by wait as well
    const bySlots = this.#case.gates.some(({ byCost }) => byCost);
    const perhaps = bySlots ? called.filter((key) => this.#model.waitsLong(key, this.#now)) : [];
    this.#follow(keys, decayed, first, perhaps);
    return routed > 0 || claimed > 0;
  }

  /** Whom limiters will call before their turn, because they have waited for longest: the engine's choice. */
  async #calledByWait(): Promise<string[]> {
    await this.#client.query("begin");
    const called = await inside(
      this.#client,
      `select ${LANE} as key from policies p
       cross join lateral _next_in_line(p, 'default', array(
         select l from limiters l where l.id = any(_limiters_to_look_at(p, $3, '{}', $2, false))), null, true, false, $3, $2) n
       cross join unnest(n.called) c
       join partitions q on q.id = c.id
       where p.name = $1 and c.first_jobs > 0`,
      [this.engine.policy, new Date(this.#now), this.#claim],
    );
    await this.#client.query("rollback");
    return called.map(({ key }) => key);
  }

  /** A case has too few admissions for a tenth one: in half of them the next place of each limiter is one. */
  async #makePlacesTenths(): Promise<void> {
    await this.#client.query(
      `update dispatch_policy_internal.limiters l set admitted = 9
       from dispatch_policy_internal.policies p where p.name = $1 and l.policy_id = p.id and l.admitted <> 9`,
      [this.engine.policy],
    );
  }

  /**
   * Few arrivals of known partitions mostly as a pass routes them. Else every other time in small batches, of which half are the newest arrivals. The outcome is the same but for two things.
   * If one batch lowers a bucket and another raises it again, it has lost what it had. And the mean of what jobs took goes
   * by batches.
   */
  async #route(): Promise<number> {
    const inOne = this.#limitsToRoute.size > 1 || this.#hasEndsToRoute;
    const most = this.#routed++ % 2 === 0 || inOne ? 10_000 : 3;
    this.#limitsToRoute.clear();
    this.#hasEndsToRoute = false;
    const few = this.#turns++ % 4 < 3 ? await this.#routeFew() : 0;
    if (few > 0) {
      this.#target.onRoutedFew();
      this.#model.route(this.#now);
      return few;
    }
    let routed = 0;
    for (let last = most; last >= most; routed += last) {
      const { rows } = await this.#client.query("select dispatch_policy_internal._route($1, $2, $3) as n", [
        this.engine.policy,
        new Date(this.#now),
        most,
      ]);
      last = rows[0].n;
    }
    this.#model.route(this.#now);
    return routed;
  }

  /** As a pass does before it admits. Returns how many it routed. */
  async #routeFew(): Promise<number> {
    const [row] = await inside(
      this.#client,
      "select _route_few(p, $2) as routed from policies p where p.name = $1",
      [this.engine.policy, new Date(this.#now)],
    );
    return row.routed ?? 0;
  }

  #visitedSince(before: Snapshot): string[] {
    const visited = new Map(before.partitions.map((partition) => [partition.key, partition.visited]));
    return this.#snapshot.partitions
      .filter((partition) => partition.visited !== (visited.get(partition.key) ?? 0))
      .map(({ key }) => key);
  }

  /** What goes past the gates is the engine's choice: due, in order, no more than asked for, and charged. */
  async #admit({ partition, count, settles }: Step & { do: "admit" }): Promise<void> {
    await this.#route();
    await this.#compareDecayed();
    const before = this.#snapshot;
    await this.#call("admit(policy => $1, count => $2, partition => $3, now => $4)", [
      ...[count, partition, new Date(this.#now)],
    ]);
    await this.#look();
    const keys = this.#visitedSince(before);
    const left = new Set(this.#snapshot.staged.map(({ id }) => id));
    this.#model.promote(keys, this.#now);
    this.#model.expire(keys, this.#now);
    const admitted = [...this.#model.staged.values()].filter(({ id }) => !left.has(id));
    atMost("jobs admitted past the gates", admitted.length, count);
    for (const key of new Set(admitted.map((job) => job.partition))) {
      const jobs = admitted.filter((job) => job.partition === key);
      const first = this.#model.line(key).slice(0, jobs.length);
      same(`the first jobs of ${key}`, this.#inWords(jobs), this.#inWords(first));
    }
    this.#model.charge(keys, admitted, this.#now, { forced: true });
    this.#model.postpone(keys, this.#now);
    this.#compare();
    if (settles) await this.#settle();
  }

  /** The decayed admits, and means, as the engine sees them: the model's, but for the last bit, which decides ties. */
  async #compareDecayed(): Promise<{
    decayed: ReadonlyMap<string, number>;
    eligible: ReadonlyMap<string, number>;
    first: ReadonlySet<string>;
    waiting: ReadonlyMap<string, Waiting>;
  }> {
    const { rows } = await this.#client.query(
      `select ${LANE} as key, q.mean_work, q.fair_key, q.goes_first, q.blocked_on, q.eligible_at <= $2 as eligible,
         max(dispatch_policy_internal._decayed(q.decayed_admits, q.decayed_at, p.half_life, $2)) over (partition by q.key) as decayed
       from dispatch_policy_internal.partitions q join dispatch_policy_internal.policies p on p.id = q.policy_id
       where p.name = $1`,
      [this.engine.policy, new Date(this.#now)],
    );
    this.#isSlotKept = this.#snapshot.limiters.some((one) => one.reservedFor !== null);
    for (const { key, decayed, mean_work } of rows) {
      const partition = this.#model.partitions.get(key)!;
      close(`decayed admits of ${key}`, decayed, this.#model.decayedOf(partition, this.#now));
      close(`mean work of ${key}`, mean_work ?? 0, partition.meanWork ?? 0);
      partition.meanWork = mean_work ?? undefined;
    }
    return {
      decayed: new Map(rows.map(({ key, decayed }) => [key, decayed])),
      eligible: new Map(
        rows.filter((row) => row.eligible).map(({ key, fair_key }) => [key, fair_key as number]),
      ),
      first: new Set(rows.filter((row) => row.goes_first).map(({ key }) => key)),
      waiting: new Map(
        rows
          .filter((row) => row.blocked_on !== null)
          .map(({ key, fair_key, blocked_on }) => [key, { fairKey: fair_key, limiter: blocked_on }]),
      ),
    };
  }

  /**
   * As many as it may claim, and none whose key is greater than that of one it left. A key is too great some time later,
   * until it is worked out again: that may have happened in the pass. A tenth as many may come beside them that have
   * waited for long. And limiters may have called those that wait for them.
   */
  #checkClaim(
    claimed: readonly string[],
    eligible: ReadonlyMap<string, number>,
    waiting: ReadonlyMap<string, Waiting>,
  ): void {
    if (this.#model.pausedUntil > this.#now) return;
    const most = this.#model.settings.halfLifeSeconds === null ? 0 : Math.ceil(this.#claim / 10);
    const keys = claimed.filter((key) => eligible.has(key));
    // of those whom limiters called, what a pass cannot take is eligible from then on, and may come before others
    const ready = Math.max(claimed.length - keys.length - this.#claim, 0);
    if (keys.length + ready < Math.min(this.#claim, eligible.size))
      same("partitions that were eligible and claimed", keys.length, eligible.size);
    const beside = keys.filter((key) => !waiting.has(key)).length - Math.min(this.#claim, eligible.size);
    atMost("partitions claimed beside those in fair order", beside, most);
    const least = Math.min(
      ...this.#snapshot.partitions
        .filter(({ key }) => eligible.has(key) && !keys.includes(key))
        // that of a lane changes with what was claimed of its partition
        .map(({ key, fairKey }) =>
          this.#model.lanesOf(key).length > 1 ? Math.max(fairKey, eligible.get(key)!) : fairKey,
        ),
    );
    let early = 0;
    for (const key of keys.filter((one) => !waiting.has(one))) {
      const anew = this.#model.fairKey(this.#model.partitions.get(key)!, this.#now);
      const lowest = Math.min(eligible.get(key)!, anew);
      if (lowest <= least + 1e-9 * Math.abs(least)) continue;
      if (!this.#model.waitsLong(key, this.#now) || ++early > most)
        throw new Difference(`${key}, with a fair key of ${lowest}, was claimed before one of ${least}`);
    }
  }

  /**
   * Whose turn it was of those whom a limiter called: they waited for it, and none went before one of a lower fair key. A
   * waiter whose own time has come is eligible as well: it is in `looked` alone, and nobody has passed it by.
   */
  #checkLine(called: readonly string[], looked: readonly string[], waiting: ReadonlyMap<string, Waiting>) {
    for (const key of called) {
      const { limiter, fairKey } = waiting.get(key) ?? {};
      if (limiter === undefined)
        throw new Difference(`${key} was looked at, and neither eligible nor waiting`);
      const anew = this.#model.fairKey(this.#model.partitions.get(key)!, this.#now);
      const lowest = Math.min(fairKey!, anew);
      for (const [other, its] of waiting)
        if (
          its.limiter === limiter &&
          !looked.includes(other) &&
          !this.#model.isTooDear(other, this.#now) &&
          its.fairKey < lowest - 1e-9 * Math.abs(lowest)
        )
          if (!this.#model.waitsLong(key, this.#now))
            throw new Difference(
              `${key}, with a fair key of ${lowest}, went before ${other} with ${its.fairKey}`,
            );
    }
  }

  /**
   * Holds what a pass over these partitions admitted against the model, and lets the model do the same. `perhaps`: some of
   * them may have gone before their turn, because they have waited for longest.
   */
  #follow(
    keys: readonly string[],
    decayed: ReadonlyMap<string, number>,
    marked: ReadonlySet<string>,
    perhaps: readonly string[] = [],
  ): void {
    const left = new Set(this.#snapshot.staged.map(({ id }) => id));
    for (const key of keys)
      if (this.#model.isStopped(this.#model.partitions.get(key)!, this.#now))
        throw new Difference(`${key} was claimed while it is stopped`);
    for (const key of keys)
      if (marked.has(key) && !this.#model.waitsLong(key, this.#now))
        throw new Difference(`${key} goes before its turn, and has not waited for long`);
    this.#model.promote(keys, this.#now);
    this.#model.expire(keys, this.#now);
    const admitted = [...this.#model.staged.values()].filter(({ id }) => !left.has(id));
    const looked = keys.filter((key) => !this.#model.waitsInOrder(key));
    this.#checkLimits(looked, admitted);
    const expected = (first: ReadonlySet<string>) =>
      this.#inWords(this.#model.admissible(looked, this.#now, decayed, first));
    const first =
      subsetsOf(perhaps)
        .map((some) => new Set([...marked, ...some]))
        .find((turns) => expected(turns) === this.#inWords(admitted)) ?? marked;
    const words = expected(first);
    // where keyed scopes overlap, the engine's choice of jobs may be held against the limits only
    if (!this.#isSlotKept && !this.#model.isChoice) same("jobs admitted", this.#inWords(admitted), words);
    this.#model.charge(looked, admitted, this.#now, { decayed, first });
    for (const key of keys) if (!looked.includes(key)) this.#model.passBy(key, this.#now);
    // lanes without a next job are in no order, and one whose jobs are postponed may stand before others for one pass more
    const isPlaced = (key: string) =>
      this.#model.lanesOf(key).length === 1 ||
      (this.#model.line(key).length > 0 && this.#case.settings.busyDelaySeconds === undefined);
    for (const { key, fairKey } of this.#snapshot.partitions)
      if (keys.includes(key) && isPlaced(key))
        close(
          `fair key of ${key}`,
          fairKey,
          this.#model.fairKey(this.#model.partitions.get(key)!, this.#now, looked),
        );
    this.#model.postpone(keys, this.#now);
    this.#compare();
  }

  /** What no pass may do, whatever it chooses. */
  #checkLimits(keys: readonly string[], admitted: readonly Job[]): void {
    const { batchSize, budget } = this.#case.settings;
    if (budget !== null) atMost("jobs admitted, by the budget", admitted.length, budget);
    for (const key of new Set([...keys, ...admitted.map(({ partition }) => partition)])) {
      const jobs = admitted.filter(({ partition }) => partition === key);
      if (!keys.includes(key))
        throw new Difference(`${key} was not claimed, and ${jobs.length} of its jobs went`);
      atMost(`jobs of ${key} admitted, by the batch`, jobs.length, batchSize);
      const first = this.#model.line(key).slice(0, jobs.length);
      same(`the first jobs of ${key}`, this.#inWords(jobs), this.#inWords(first));
    }
    for (const limiter of this.#model.limiters.values()) {
      const jobs = admitted.filter(({ partition }) =>
        this.#model.partitions.get(partition)!.limiters.includes(limiter),
      );
      if (jobs.length === 0 || limiter.shadow) continue;
      if (limiter.gate.kind !== "throttle") {
        atMost(
          `${limiter.name} in flight`,
          limiter.inFlight +
            jobs.reduce((sum, { partition }) => sum + this.#model.takes(partition, limiter), 0),
          this.#model.capOf(limiter, this.#now),
        );
        continue;
      }
      const numbers = this.#model.numbersOf(limiter, this.#now);
      if (numbers.rate! <= 0)
        throw new Difference(`${limiter.name} let ${jobs.length} jobs through at rate 0`);
      const tokens = this.#model.tokensOf(limiter, this.#now);
      const cost = jobs.reduce((sum, job) => sum + job.cost, 0);
      const full = tokens >= capacityOf(numbers) - 1e-9;
      if (jobs.length > 1 || !full) atMost(`${limiter.name}: tokens taken`, cost, tokens + 1e-6);
    }
  }

  /** Passes until nothing moves any more, not in a moment either; then nobody waits who could go. */
  async #settle(): Promise<void> {
    let quiet = 0;
    for (let passes = 0; quiet < 4; passes++) {
      if (passes === MOST_PASSES * (this.#claim < 50 ? 8 : 1))
        throw new Difference(`something still moves after ${passes} passes`);
      quiet = (await this.#pass()) ? 0 : quiet + 1;
      if (quiet === 2) this.#now += MOMENT_MS;
    }
    // a clock that went back finds partitions that were told to come back later
    if (this.#now < this.#latest) return;
    const kept = new Map(
      this.#snapshot.limiters
        .filter(({ reservedFor, reservedUntil }) => reservedFor !== null && reservedUntil! > this.#now)
        .map(({ name, key, reservedFor }) => [limiterName(name, key), reservedFor!]),
    );
    same("partitions that wait although they could go", this.#model.idle(this.#now, kept).join(" "), "");
  }

  /** As if every partition's time had come and every limiter had said it has room. */
  async #lookAgain(): Promise<void> {
    await this.#client.query(
      `update dispatch_policy_internal.partitions q set denied_until = '-infinity', blocked_on = null
       from dispatch_policy_internal.policies p where p.name = $1 and p.id = q.policy_id`,
      [this.engine.policy],
    );
    await this.#pass();
  }

  async #finish({ jobs, atRest }: Step & { do: "finish" }): Promise<void> {
    if (atRest) await this.#settle();
    this.#hasEndsToRoute = true;
    const running = [...this.#model.inFlight.keys()].sort();
    if (running.length === 0) return;
    const finished = new Map(
      jobs.map(({ nth, ...ended }): [string, Finish] => {
        const id = running[nth % running.length]!;
        return [id, { id, ...ended }];
      }),
    );
    const jobIds = new Map(this.#snapshot.inFlight.map(({ job, staged }) => [staged, job]));
    const outcomes = [...finished.values()].map(({ id, ok, lagMs, seconds, settled: cost }) => {
      const { priority } = this.#model.inFlight.get(id)!.job;
      const retry = { attempt: 0, task: this.engine.policy, after: seconds, priority, maxAttempts: 25 };
      const ended = { admission: null, attempt: null, retry: this.#model.retries(ok) ? retry : null };
      const settled = cost === undefined ? undefined : { cost };
      return { job: jobIds.get(id)!, ok, lagMs, durationMs: seconds * 1000, settled, ...ended };
    });
    const { decayed, first, waiting, eligible } = await this.#compareDecayed();
    const freed = await this.#slotsOf(outcomes.map(({ job }) => job));
    const before = this.#snapshot;
    // in two of three cases the freed slots are passed on
    await this.#client.query("select dispatch_policy_internal._release($1, $2, $3)", [
      JSON.stringify(asSent(outcomes)),
      ...[
        new Date(this.#now),
        this.#options.passes !== false && (atRest !== undefined || this.#case.steps.length % 3 > 0),
      ],
    ]);
    this.#model.release([...finished.values()], this.#now);
    await this.#look();
    const keys = this.#visitedSince(before);
    for (const key of keys) {
      for (const other of eligible.keys())
        throw new Difference(`${key} got a slot while ${other} was eligible, before a pass`);
      if (!freed.has(waiting.get(key)?.limiter ?? ""))
        throw new Difference(`${key} was looked at, and waited for nothing that came free`);
    }
    this.#checkLine(keys, keys, waiting);
    const late = keys.filter((key) => this.#model.waitsLong(key, this.#now));
    if (keys.length > 0) this.#follow(keys, decayed, first, late);
    else this.#compare();
  }

  /** The limiters in which these jobs have slots. */
  async #slotsOf(jobs: readonly string[]): Promise<ReadonlySet<string>> {
    const { rows } = await this.#client.query(
      "select distinct u.id from dispatch_policy_internal.in_flight_jobs f, unnest(f.limiter_ids) u (id) where f.job_id = any($1)",
      [jobs],
    );
    return new Set(rows.map(({ id }) => id));
  }

  async #stop(step: Step & { do: "pause" | "hold" | "resume" }): Promise<void> {
    const [partition] = this.#model.lanesOf(step.partition);
    if (!partition) return;
    if (step.do === "resume") {
      this.#model.resume(partition);
      await this.#call("resume(policy => $1, partition => $2)", [step.partition]);
      return;
    }
    const until = this.#now + step.ms;
    if (step.do === "pause") partition.pausedUntil = until;
    else this.#model.hold(partition, until);
    await this.#call(`${step.do}(policy => $1, partition => $2, until => $3)`, [
      step.partition,
      new Date(until),
    ]);
  }

  async #override(step: Step & { do: "override" | "clear override" }): Promise<void> {
    const { gates } = this.#case;
    if (gates.length === 0) return;
    const index = step.gate % gates.length;
    const { scope } = gates[index]!;
    const gate = nameOf(gates[index]!, index);
    const plan = scope === "partition" ? step.plan : undefined;
    const where = plan === undefined ? null : JSON.stringify({ plan });
    const key =
      step.partition === null || plan !== undefined
        ? null
        : gateOf(gates[index]!, index, 0, 0).keyOf(step.partition);
    if (step.do === "clear override") {
      this.#model.clearOverride({ gate, key, plan }, this.#now);
      await this.#call("_clear_limit($1, $2, $3, null, null, $4, $5)", [
        ...[gate, key, new Date(this.#now), where],
      ]);
      return;
    }
    const set = setBy(gates[index]!, plan);
    const from = this.#now + step.inMs;
    const until = step.ms === null ? Number.POSITIVE_INFINITY : from + step.ms;
    this.#model.override({ gate, key, plan, set, from, until });
    await this.#call(
      'set_limit(policy => $1, gate => $2, key => $3, set => $4, "from" => $5, until => $6, "where" => $7)',
      [...[gate, key, JSON.stringify(set), new Date(from), step.ms === null ? null : new Date(until), where]],
    );
  }

  async #pool({ name, how }: Step & { do: "pool" }): Promise<void> {
    const poolId = `${name} of ${this.engine.policy}`;
    if (how === "comes") this.#model.pools.add(name);
    else this.#model.pools.delete(name);
    if (how === "dies") {
      await this.#client.query(
        "update dispatch_policy_internal.workers set stale_at = '-infinity' where pool_id = $1",
        [poolId],
      );
      return;
    }
    await poolLives(this.engine, poolId, how === "comes" ? 10 : 0, this.#client);
  }

  async #requeue({ nth }: Step & { do: "requeue" }): Promise<void> {
    const running = [...this.#model.inFlight.keys()].sort();
    if (running.length === 0) return;
    const id = running[nth % running.length]!;
    const { job: jobId } = this.#snapshot.inFlight.find(({ staged }) => staged === id)!;
    const as = this.#client;
    const job = await fetchJob(this.engine, jobId, "worker", as);
    const { admission } = await startJob(this.engine, job, { as });
    const gates = this.#case.gates.filter(({ perWorker }) => perWorker !== undefined).map(nameOf);
    const sent = await requeue(this.engine, job, admission, { as, gates, now: new Date(this.#now) });
    same("whether the job was requeued", sent, true);
    await completeJob(this.engine, jobId, as);
    this.#model.requeue(id, this.#now);
    await this.#look();
    this.#compare();
  }

  async #call(text: string, values: unknown[]): Promise<void> {
    await inside(this.#client, `select from ${routineOf(text)}`, [this.engine.policy, ...values]);
  }

  async #look(): Promise<void> {
    const { rows } = await this.#client.query(SNAPSHOT, [this.engine.policy]);
    this.#snapshot = rows[0].it;
  }

  #compare(): void {
    const { limiters, partitions, staged, inFlight, shadowDenied } = this.#snapshot;
    const model = this.#model;
    const byGate = (counts: Iterable<readonly [string, number]>) => JSON.stringify([...counts].sort());
    same("would-be denials", byGate(Object.entries(shadowDenied)), byGate(model.shadowDenied));
    const ids = staged.map(({ id }) => id).sort();
    same("jobs staged", ids.join(" "), [...model.staged.keys()].sort().join(" "));
    for (const { id, runAt } of staged) same(`when ${id} is due`, runAt, model.staged.get(id)!.runAt);
    same(
      "jobs in flight",
      inFlight
        .map((job) => job.staged)
        .sort()
        .join(" "),
      [...model.inFlight.keys()].sort().join(" "),
    );
    same("limiters", limiters.length, model.limiters.size);
    for (const row of limiters) {
      const limiter = model.limiters.get(limiterName(row.name, row.key))!;
      same(`${limiter.name}: in flight`, row.inFlight, limiter.inFlight);
      if (limiter.gate.kind === "throttle") {
        const spent = row.spent.map(({ at, cost }) => ({ at: Date.parse(at), cost }));
        const engines = { ...limiter, tokens: row.tokens!, filledAt: Math.round(row.filledAt!), spent };
        const [has, expected] = [engines, limiter].map((one) => model.tokensOf(one, this.#now));
        if (Math.abs(has! - expected!) > 1e-6) differ(`${limiter.name}: tokens`, has, expected);
      } else if (limiter.gate.kind === "adaptive_concurrency") {
        same(`${limiter.name}: learnt limit`, row.learnt, limiter.learnt);
        close(`${limiter.name}: lag`, row.lag ?? 0, limiter.lag);
      }
    }
    for (const row of partitions) {
      const partition = model.partitions.get(row.key)!;
      const engines = { ...partition, decayed: row.decayed, decayedAt: row.decayedAt };
      const [has, expected] = [engines, partition].map((one) => model.ownDecayedOf(one, this.#now));
      close(`decayed admits of ${row.key}`, has!, expected!);
      const waiting = [...model.staged.values()].filter(({ partition }) => partition === row.key);
      same(`count of staged jobs of ${row.key}`, row.staged, waiting.length);
    }
  }

  #inWords(jobs: readonly Job[]): string {
    const words = [...jobs]
      .sort((a, b) => Number(a.id) - Number(b.id))
      .map(({ id, partition, cost }) => `${partition}/${id.slice(-4)}${cost === 1 ? "" : ` at ${cost}`}`);
    return words.join(", ") || "none";
  }
}

/** The smallest first. */
function subsetsOf<T>(all: readonly T[]): T[][] {
  const [first, ...others] = all;
  if (first === undefined) return [[]];
  const without = subsetsOf(others);
  return [...without, ...without.map((some) => [first, ...some])].sort((a, b) => a.length - b.length);
}

function same(what: string, engine: unknown, model: unknown): void {
  if (engine !== model) differ(what, engine, model);
}

function close(what: string, engine: number, model: number): void {
  if (Math.abs(engine - model) > 1e-9 * Math.max(1, Math.abs(model))) differ(what, engine, model);
}

function atMost(what: string, value: number, most: number): void {
  if (value > most) throw new Difference(`${what}: ${value}, at most ${most}`);
}

function differ(what: string, engine: unknown, model: unknown): never {
  throw new Difference(`${what}: the engine says ${engine}, the model ${model}`);
}
