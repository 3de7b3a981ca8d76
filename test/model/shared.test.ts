// Random lives of policies that share a limit, judged by what a pass may take of it: no more than there is, nothing that is
// another policy's by virtual time, and all of it in the end.
import test from "ava";
import type pg from "pg";
import { concurrency, makePolicyUtils, type PolicyUtils, shared, throttle } from "../../src/index.ts";
import { atLength } from "../helpers/at-length.ts";
import { testDatabase } from "../helpers/database.ts";
import { plantIn } from "../helpers/inside.ts";
import { type Random, random, seedOf } from "../helpers/random.ts";
import { type Ctx, policyOf } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";

const CASES = process.env.TEST_ALL === "1" ? 60 : 12;
const MUTANT_CASES = 40;
const STEPS = 12;
const HALF_LIFE = 60;
const CLOSE = 1e-6;

/** A partition as the database has it between two passes. */
interface Line {
  readonly policy: string;
  readonly key: string;
  readonly weight: number;
  readonly staged: number;
  readonly decayed: number;
  readonly decayedAt: Date;
  readonly lookedAt: Date;
  readonly waits: boolean;
}

class Life {
  readonly #pool: pg.Pool;
  readonly #utils: PolicyUtils;
  readonly #policies: readonly string[];
  readonly #limit: string;
  readonly #max: number | null;
  readonly #rate: number;
  readonly #burst: number;
  #tokens: number;
  /** How many jobs releases have admitted. */
  passedOn = 0;
  /** Behind the clock, by which releases go: nobody is late. */
  #now = Date.now() - 120_000;

  constructor(
    pool: pg.Pool,
    utils: PolicyUtils,
    names: { policies: readonly string[]; limit: string },
    numbers: { max: number | null; rate: number; burst: number },
  ) {
    this.#pool = pool;
    this.#utils = utils;
    this.#policies = names.policies;
    this.#limit = names.limit;
    this.#max = numbers.max;
    this.#rate = numbers.rate;
    this.#burst = numbers.burst;
    this.#tokens = numbers.burst;
  }

  async stage(policy: string, key: string, weight: number, count: number): Promise<void> {
    const job = { identifier: policy, payload: { key, weight }, runAt: new Date("2020-02-29T00:00:00Z") };
    await this.#utils.addJobs(Array.from({ length: count }, () => job) as never);
  }

  /** Jobs end: as a sweep finds them, or as a worker releases them, which may pass their slots on. */
  async end(share: number, passesOn: boolean): Promise<void> {
    const { rows } = await this.#pool.query(
      "select job_id from dispatch_policy.in_flight_jobs where policy = any($1) order by staged_id",
      [this.#policies],
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
       select p, 'default', 'loop', clock_timestamp() + interval '29 seconds' from unnest($1::text[]) p
       on conflict (policy, shard) do update set expires_at = excluded.expires_at`,
      [this.#policies],
    );
    await this.#pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
    const lines = await this.#lines();
    const ended = await this.#running();
    const { rows: before } = await this.#pool.query(
      `select policy || ' ' || partition as name from dispatch_policy.in_flight_jobs where job_id = any($1)`,
      [jobs],
    );
    for (const { name } of before) ended.set(name, ended.get(name)! - 1);
    const room = this.#max === null ? 0 : this.#max - sum(ended.values());
    await this.#pool.query("select left_ids from dispatch_policy_internal._release($1, $2, true)", [
      JSON.stringify(jobs.map((job) => ({ job, ok: true }))),
      new Date(this.#now),
    ]);
    // with a loop a job might go in the call that adds it, by the clock's tokens
    await this.#pool.query("delete from dispatch_policy_internal.leases where policy = any($1)", [
      this.#policies,
    ]);
    const went = more(ended, await this.#running());
    this.passedOn += sum(went.values());
    this.#judge(
      lines,
      lines.filter(({ waits }) => waits),
      went,
      room,
    );
  }

  later(seconds: number): void {
    this.#now += seconds * 1000;
    if (this.#max === null) this.#tokens = Math.min(this.#tokens + seconds * this.#rate, this.#burst);
  }

  /** A pass of a policy, judged. How many jobs went. */
  async pass(policy: string): Promise<number> {
    const before = await this.#lines();
    const room = await this.#room();
    const running = await this.#running();
    await this.#utils.tick({ policy, now: new Date(this.#now) });
    const went = more(running, await this.#running());
    const all = sum(went.values());
    if (this.#max === null) this.#tokens -= all;
    this.#judge(
      before,
      before.filter((line) => line.waits && line.policy !== policy),
      went,
      room,
    );
    return all;
  }

  /**
   * No more may go than there is room for, and none whose place is that of a job in line.
   *
   * A line is in the order of the keys that its partitions got when somebody last looked at them, within a half-life. What has
   * decayed since may bring one before others; but whom a pass calls, and leaves places to, are the first of the line. So those
   * have the virtual times of that look here. Those who go are ranked by the times of now.
   */
  #judge(
    before: readonly Line[],
    line: readonly Line[],
    went: ReadonlyMap<string, number>,
    room: number,
  ): void {
    const all = sum(went.values());
    if (all > room) throw new Error(`${all} went where ${room} may`);
    const theirs = line.flatMap((one) => {
      const gone = went.get(`${one.policy} ${one.key}`) ?? 0;
      return times(one, one.staged, one.lookedAt.getTime()).slice(gone);
    });
    const own = [...went].flatMap(([name, count]) =>
      times(lineOf(before, name, this.#now), count, this.#now),
    );
    own
      .sort((a, b) => a - b)
      .forEach((time, place) => {
        const earlier = theirs.filter((other) => other < time - CLOSE).length;
        if (place + earlier >= room)
          throw new Error(`a job went at virtual time ${time}, ${earlier} of others before it, room ${room}`);
      });
  }

  /** Passes of all, until nobody has anything to look at. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 30; turn++) {
      let went = 0;
      for (const policy of this.#policies) went += await this.pass(policy);
      if (went === 0 && (await this.#untold())) return this.#judgeRest();
    }
    throw new Error("passes never end");
  }

  async #judgeRest(): Promise<void> {
    const room = await this.#room();
    const waiting = (await this.#lines()).filter(({ staged }) => staged > 0);
    if (room > 0 && waiting.length > 0)
      throw new Error(`${waiting.length} partitions wait although ${room} could go`);
  }

  async #untold(): Promise<boolean> {
    const { rows } = await this.#pool.query("select from dispatch_policy_internal.freed");
    return rows.length === 0;
  }

  async #room(): Promise<number> {
    if (this.#max === null) return Math.floor(this.#tokens + CLOSE);
    return this.#max - sum((await this.#running()).values());
  }

  async #running(): Promise<Map<string, number>> {
    const { rows } = await this.#pool.query(
      `select policy || ' ' || partition as name, count(*)::int as n from dispatch_policy.in_flight_jobs
       where policy = any($1) group by 1`,
      [this.#policies],
    );
    return new Map(rows.map(({ name, n }) => [name, n]));
  }

  async #lines(): Promise<Line[]> {
    const { rows } = await this.#pool.query(
      `select p.name as policy, q.key, q.weight, q.staged, q.decayed_admits as decayed, q.decayed_at as "decayedAt",
         q.looked_at as "lookedAt",
         l.id is not null as waits
       from dispatch_policy_internal.partitions q join dispatch_policy_internal.policies p on p.id = q.policy_id
       left join dispatch_policy_internal.limiters l on l.id = q.blocked_on and l.gate = $2
       where p.name = any($1)`,
      [this.#policies, this.#limit],
    );
    return rows;
  }
}

const sum = (numbers: Iterable<number>) => [...numbers].reduce((all, n) => all + n, 0);

/** How many jobs more run of each partition. */
function more(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): Map<string, number> {
  const all = [...after].map(([name, count]) => [name, count - (before.get(name) ?? 0)] as const);
  return new Map(all.filter(([, count]) => count > 0));
}

/** A partition that the pass has routed. */
function lineOf(lines: readonly Line[], name: string, now: number): Line {
  const found = lines.find(({ policy, key }) => `${policy} ${key}` === name);
  const [policy, key] = name.split(" ") as [string, string];
  const weight = Number(key.slice(1));
  const at = new Date(now);
  return (
    found ?? { policy, key, weight, staged: 0, decayed: 0, ...{ decayedAt: at, lookedAt: at }, waits: false }
  );
}

/** The virtual times of a partition's next jobs. */
function times({ decayed, decayedAt, weight }: Line, count: number, now: number): number[] {
  const age = Math.max((now - decayedAt.getTime()) / 1000, 0);
  const left = decayed * 0.5 ** (age / HALF_LIFE);
  return Array.from({ length: count }, (_, n) => ((left < 0.001 ? 0 : left) + n + 1) / weight);
}

/** How many jobs releases have admitted. */
async function live(pool: pg.Pool, one: Random, place: number): Promise<number> {
  const policies = ["a", "b", "c"].slice(0, 2 + one.below(2)).map((name) => `${name}${place}`);
  const limit = `limit${place}`;
  const isCap = one.chance(0.5);
  const max = 1 + one.below(6);
  const numbers = { max: isCap ? max : null, rate: 1 + one.below(3), burst: 1 + one.below(4) };
  const gate = isCap
    ? concurrency<Ctx>({ scope: "policy", max })
    : throttle<Ctx>({ scope: "policy", rate: numbers.rate, per: "1 second", burst: numbers.burst });
  const api = shared(limit, gate);
  const utils = await makePolicyUtils({
    ...{ pgPool: pool, logger: silent },
    policies: policies.map((name) => policyOf(name, { gates: [api] })),
  });
  try {
    const life = new Life(pool, utils, { policies, limit }, numbers);
    for (let step = 0; step < STEPS; step++) {
      if (one.chance(0.7)) {
        const weight = one.pick([1, 2, 3]);
        await life.stage(one.pick(policies), `k${weight}`, weight, 1 + one.below(9));
      }
      if (one.chance(0.5)) await life.end(one.unit(), one.chance(0.6));
      if (!isCap && one.chance(0.6)) life.later(one.pick([0.25, 0.5, 0.75]));
      for (let passes = one.below(4); passes > 0; passes--) await life.pass(one.pick(policies));
      await life.settle();
    }
    return life.passedOn;
  } finally {
    await utils.release();
  }
}

async function lives(
  pool: pg.Pool,
  seed: number,
  cases: number,
): Promise<{ found: string[]; passedOn: number }> {
  const found: string[] = [];
  let passedOn = 0;
  for (let place = 0; place < cases && found.length === 0; place++) {
    try {
      passedOn += await live(pool, random(seed + place), place);
    } catch (error) {
      found.push(`case ${place}: ${(error as Error).message}`);
    }
  }
  return { found, passedOn };
}

test("policies share a limit as the model says", async (t) => {
  t.timeout(600_000);
  const { pool } = await testDatabase(t);
  const { found, passedOn } = await lives(pool, seedOf(t), CASES);
  t.deepEqual(found, []);
  t.log(`${passedOn} jobs went in releases`);
  t.true(passedOn > 0);
});

const MUTANTS = [
  {
    name: "a pass keeps nothing for others",
    of: "_keep_for_others",
    from: /continue when v_kept = 0/,
    to: "continue",
    shows: /went at virtual time/,
  },
  {
    name: "weights of others count for nothing",
    of: "_places_of_others",
    from: /\(p\.decayed \+ n\) \/ p\.weight/,
    to: "p.decayed + n",
    shows: /went at virtual time/,
  },
  {
    name: "nobody tells other policies of room",
    of: "_tell_in_line",
    from: /where not exists \(select from freed/,
    to: "where false and not exists (select from freed",
    shows: /wait although/,
  },
  {
    name: "what others keep of a throttle is lost",
    of: "_charge_limiters",
    from: /x\.tokens_left \+ x\.kept/,
    to: "x.tokens_left",
    shows: /wait although/,
  },
  {
    name: "a release passes slots on past others",
    of: "_is_of_others",
    from: /where x\.policy_id <> /,
    to: "where x.policy_id < 0 and x.policy_id <> ",
    shows: /went at virtual time/,
  },
  {
    name: "a cap counts the jobs of one policy",
    of: "_make_limiters",
    from: /\(l\.value ->> 'owner'\)::int/,
    to: "null::int",
    shows: /went where/,
  },
];

for (const { name, of, from, to, shows } of MUTANTS)
  atLength(`the model finds: ${name}`, async (t) => {
    t.timeout(600_000);
    const { pool } = await testDatabase(t);
    await plantIn(pool, { name, of, from, to });
    const { found } = await lives(pool, 1, MUTANT_CASES);
    t.regex(found[0] ?? "nothing", shows);
  });
