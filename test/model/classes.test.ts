// Random lives of a policy with classes under one limit. A pass or a release admits what a few lines admit: place by place, the
// class whose place it is if it waits there, else the lowest class; within a class the least virtual time.
import test from "ava";
import type pg from "pg";
import { concurrency, makePolicyUtils, type PolicyUtils, throttle } from "../../src/index.ts";
import { atLength } from "../helpers/at-length.ts";
import { testDatabase } from "../helpers/database.ts";
import { plantIn } from "../helpers/inside.ts";
import { type Random, random, seedOf } from "../helpers/random.ts";
import { type Ctx, policyOf } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";

const CASES = process.env.TEST_ALL === "1" ? 80 : 16;
const MUTANT_CASES = 40;
const STEPS = 14;
/** So long that no decay changes an order: keys in line are as of the last look. */
const HALF_LIFE = 86_400_000; // 1000 days
const CLOSE = 1e-6;
const LATER = [1, 2, 3, 4, 5] as const;

type Shares = Readonly<Record<number, number>>;

/** A lane as the database has it between two passes. */
interface Lane {
  readonly id: string;
  readonly class: number;
  readonly weight: number;
  readonly staged: number;
  readonly decayed: number;
  readonly decayedAt: Date;
  readonly waits: boolean;
}

/** The class whose the k-th place is: of the first k, floor(k * s) are later classes', and so on among these. */
function classOfPlace(k: number, shares: Shares): number {
  const from = (least: number) => sum(LATER.map((later) => (later >= least ? (shares[later] ?? 0) : 0)));
  let owner = 0;
  let place = k;
  for (const later of LATER) {
    const part = later === 1 ? from(1) : from(later) / (from(later - 1) || 1);
    const count = Math.floor(place * part + CLOSE);
    if (count === Math.floor((place - 1) * part + CLOSE)) return owner;
    owner = later;
    place = count;
  }
  return owner;
}

/** How many jobs of each class go at the next `places`: those that wait in line have its places, all have the others. */
function expected(lanes: readonly Lane[], places: number, before: number, shares: Shares): number[] {
  const jobs = (of: readonly Lane[], one: number) =>
    sum(of.map((lane) => (lane.class === one ? lane.staged : 0)));
  const owners = Array.from({ length: places }, (_, n) => classOfPlace(before + n + 1, shares));
  const went = [0, ...LATER].map((one) => {
    const its = owners.filter((owner) => owner === one && one > 0).length;
    return Math.min(
      its,
      jobs(
        lanes.filter(({ waits }) => waits),
        one,
      ),
    );
  });
  let left = places - sum(went);
  return went.map((first, one) => {
    const others = Math.min(left, jobs(lanes, one) - first);
    left -= others;
    return first + others;
  });
}

const sum = (numbers: readonly number[]) => numbers.reduce((all, n) => all + n, 0);

class Life {
  readonly #pool: pg.Pool;
  readonly #utils: PolicyUtils;
  readonly #policy: string;
  readonly #max: number | null;
  readonly #shares: Shares;
  #tokens: number;
  #admitted = 0;
  /** How many jobs releases have admitted, and how many of later classes went while lower ones waited. */
  passedOn = 0;
  kept = 0;
  /** Behind the clock, by which releases go: nobody is late. */
  #now = Date.now() - 120_000;

  constructor(
    pool: pg.Pool,
    utils: PolicyUtils,
    { policy, max, burst, shares }: { policy: string; max: number | null; burst: number; shares: Shares },
  ) {
    this.#pool = pool;
    this.#utils = utils;
    this.#policy = policy;
    this.#max = max;
    this.#shares = shares;
    this.#tokens = burst;
  }

  async stage(key: string, ofClass: number, weight: number, count: number): Promise<void> {
    const payload = { key, weight, max: ofClass + 1 };
    const job = { identifier: this.#policy, payload, runAt: new Date("2020-02-29T00:00:00Z") };
    await this.#utils.addJobs(Array.from({ length: count }, () => job) as never);
  }

  later(seconds: number, rate: number, burst: number): void {
    this.#now += seconds * 1000;
    if (this.#max === null) this.#tokens = Math.min(this.#tokens + seconds * rate, burst);
  }

  /** Jobs end: as a sweep finds them, or as a worker releases them, which may pass their slots on. */
  async end(share: number, passesOn: boolean): Promise<void> {
    const { rows } = await this.#pool.query(
      "select job_id from dispatch_policy.in_flight_jobs where policy = $1 order by staged_id",
      [this.#policy],
    );
    const jobs = rows.slice(0, Math.ceil(rows.length * share)).map(({ job_id }) => job_id);
    if (jobs.length === 0) return;
    if (!passesOn) {
      await this.#utils.completeJobs(jobs);
      await this.#utils.sweep();
      return;
    }
    await this.#pool.query(
      `insert into dispatch_policy_internal.leases (policy, shard, holder, expires_at)
       values ($1, 'default', 'loop', clock_timestamp() + interval '29 seconds')
       on conflict (policy, shard) do update set expires_at = excluded.expires_at`,
      [this.#policy],
    );
    await this.#pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
    const before = await this.#lanes();
    const running = rows.length - jobs.length;
    await this.#pool.query("select left_ids from dispatch_policy_internal._release($1, $2, true)", [
      JSON.stringify(jobs.map((job) => ({ job, ok: true }))),
      new Date(this.#now),
    ]);
    const after = await this.#lanes();
    const went = gone(before, after);
    this.passedOn += went.length;
    if (went.length === 0) return; // it is left to a pass
    const waiting = before.map((lane) => (lane.waits ? lane : { ...lane, staged: 0 }));
    this.#judge(waiting, went, this.#max === null ? 0 : this.#max - running);
  }

  /** A pass, judged. */
  async pass(): Promise<void> {
    const { rows } = await this.#pool.query(
      "select count(*)::int as n from dispatch_policy.in_flight_jobs where policy = $1",
      [this.#policy],
    );
    const places = this.#max === null ? Math.floor(this.#tokens + CLOSE) : this.#max - rows[0].n;
    await this.#route();
    const before = await this.#lanes();
    await this.#utils.tick({ policy: this.#policy, now: new Date(this.#now) });
    const went = gone(before, await this.#lanes());
    if (this.#max === null) this.#tokens -= went.length;
    this.#judge(before, went, places);
  }

  #judge(lanes: readonly Lane[], went: readonly { lane: Lane; time: number }[], places: number): void {
    const should = expected(lanes, places, this.#admitted, this.#shares);
    this.#admitted += went.length;
    const did = should.map((_, one) => went.filter(({ lane }) => lane.class === one).length);
    if (did.join() !== should.join())
      throw new Error(`by class ${did} went, expected ${should}, places ${places} from ${this.#admitted}`);
    this.kept += did.some(
      (jobs, one) => jobs > 0 && lanes.some((lane) => lane.class < one && lane.staged > did[lane.class]!),
    )
      ? 1
      : 0;
    for (const { lane, time } of went) {
      const passed = lanes.find(
        (other) =>
          other.class === lane.class &&
          (other.waits || !lane.waits) &&
          times(other, other.staged, this.#now).some(
            (its, n) => its < time - CLOSE && n >= went.filter((one) => one.lane.id === other.id).length,
          ),
      );
      if (passed)
        throw new Error(
          `of class ${lane.class} a job went at virtual time ${time} before one of ${passed.id}`,
        );
    }
  }

  async #route(): Promise<void> {
    await this.#pool.query("select dispatch_policy_internal._route($1, $2, 1000)", [
      this.#policy,
      new Date(this.#now),
    ]);
  }

  async #lanes(): Promise<Lane[]> {
    const { rows } = await this.#pool.query(
      `select q.id, q.weight,
         (select count(*)::int from dispatch_policy_internal.staged_jobs s where s.partition_id = q.id) as staged,
         q.decayed_admits as decayed, q.decayed_at as "decayedAt", q.blocked_on is not null as waits
       from dispatch_policy_internal.partitions q join dispatch_policy_internal.policies p on p.id = q.policy_id
       where p.name = $1`,
      [this.#policy],
    );
    return rows.map((row) => {
      const itsClass = Math.max(0, Math.round(-Math.log2(row.weight) / 140));
      return { ...row, class: itsClass, weight: row.weight * 2 ** (140 * itsClass), now: this.#now };
    });
  }
}

/** The jobs that have left staging, with the virtual times that they had. */
function gone(before: readonly Lane[], after: readonly Lane[]): { lane: Lane; time: number }[] {
  return before.flatMap((lane) => {
    const left = after.find(({ id }) => id === lane.id)?.staged ?? 0;
    const { now } = lane as Lane & { now: number };
    return times(lane, lane.staged - left, now).map((time) => ({ lane, time }));
  });
}

/** The virtual times of a lane's next jobs. */
function times({ decayed, decayedAt, weight }: Lane, count: number, now: number): number[] {
  const age = Math.max((now - decayedAt.getTime()) / 1000, 0);
  const left = decayed * 0.5 ** (age / HALF_LIFE);
  return Array.from({ length: count }, (_, n) => ((left < 0.001 ? 0 : left) + n + 1) / weight);
}

interface Lived {
  readonly passedOn: number;
  readonly kept: number;
}

async function live(pool: pg.Pool, one: Random, place: number): Promise<Lived> {
  const policy = `p${place}`;
  const isCap = one.chance(0.6);
  const max = 1 + one.below(8);
  const rate = 1 + one.below(4);
  const burst = 1 + one.below(8);
  const shares = one.pick<Shares>([
    {},
    { 1: 0.1 },
    { 1: 0.25 },
    { 1: 0.3, 2: 0.2 },
    { 2: 0.4 },
    { 1: 0.2, 3: 0.15 },
  ]);
  const gate = isCap
    ? concurrency<Ctx>({ scope: "policy", max })
    : throttle<Ctx>({ scope: "policy", rate, per: "1 second", burst });
  const utils = await makePolicyUtils({
    ...{ pgPool: pool, logger: silent },
    policies: [
      policyOf(policy, {
        fairness: { halfLife: "1000 days" },
        gates: [gate],
        class: (ctx: Ctx) => ctx.max - 1,
        classShare: shares,
      }),
    ],
  });
  try {
    const life = new Life(pool, utils, { policy, max: isCap ? max : null, burst, shares });
    for (let step = 0; step < STEPS; step++) {
      for (let calls = one.below(3); calls > 0; calls--) {
        const weight = one.pick([1, 2, 3]);
        await life.stage(`k${weight}`, one.pick([0, 0, 1, 1, 2, 3]), weight, 2 + one.below(8)); // a job alone may go at once
      }
      await life.pass();
      if (one.chance(0.6)) await life.end(one.unit(), one.chance(0.6));
      if (!isCap && one.chance(0.7)) life.later(one.pick([0.25, 0.5, 0.75]), rate, burst);
      await life.pass();
    }
    return life;
  } finally {
    await utils.release();
  }
}

async function lives(pool: pg.Pool, seed: number, cases: number): Promise<Lived & { found: string[] }> {
  const found: string[] = [];
  let passedOn = 0;
  let kept = 0;
  for (let place = 0; place < cases && found.length === 0; place++) {
    try {
      const lived = await live(pool, random(seed + place), place);
      passedOn += lived.passedOn;
      kept += lived.kept;
    } catch (error) {
      found.push(`case ${place}: ${(error as Error).message}`);
    }
  }
  return { found, passedOn, kept };
}

test("classes go as the model says", async (t) => {
  t.timeout(600_000);
  const { pool } = await testDatabase(t);
  const { found, passedOn, kept } = await lives(pool, seedOf(t), CASES);
  t.deepEqual(found, []);
  t.log(`${passedOn} jobs went in releases, ${kept} times a later class had its place`);
  t.true(passedOn > 0 && kept > 0);
});

const MUTANTS = [
  {
    name: "a later class has no places",
    of: "_class_turns",
    from: /continue when .+;/,
    to: "continue;",
    shows: /by class/,
  },
  {
    name: "every class has places of its own accord",
    of: "_class_places",
    from: /coalesce\(shares\[v_class\] \/ v_part, 0\)/g,
    to: "0.5",
    shows: /by class/,
  },
  {
    name: "what a partition was admitted in one class counts in others",
    of: "_share_lanes",
    from: /and _class_of\(1 \/ s\.weight\) = _class_of\(1 \/ q\.weight\)/g,
    to: "",
    shows: /of class/,
  },
  {
    name: "the least of a class goes last at its places",
    of: "_class_turns",
    from: /order by q\.fair_key, q\.due_at limit v_places/,
    to: "order by q.fair_key desc, q.due_at limit v_places",
    shows: /virtual time/,
  },
];

for (const { name, of, from, to, shows } of MUTANTS)
  atLength(`the model of classes finds: ${name}`, async (t) => {
    t.timeout(600_000);
    const { pool } = await testDatabase(t);
    await plantIn(pool, { name, of, from, to });
    const { found } = await lives(pool, 1, MUTANT_CASES);
    t.regex(found[0] ?? "nothing", shows);
  });
