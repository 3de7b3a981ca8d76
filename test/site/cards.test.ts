// Cards of the playground that promise something of several jobs: each is run over a PGlite, as in the page, and judged.
import { PGlite } from "@electric-sql/pglite";
import test, { type ExecutionContext } from "ava";
import { jobsOf } from "../../site/playground/load.ts";
import { BEGIN } from "../../site/playground/messages.ts";
import { withPgClientOf } from "../../site/playground/pglite-client.ts";
import { policyNameOf } from "../../site/playground/policy.ts";
import { PRESETS, type Preset } from "../../site/playground/presets.ts";
import { type Setup, tenantsOf } from "../../site/playground/setup.ts";
import { type Event, type Ran, simulate } from "../../site/playground/simulation.ts";
import { makePolicyUtils } from "../../src/index.ts";
import { pglitePool, virtualClock } from "../../src/testing.ts";
import { silent } from "../helpers/silent.ts";

let empty: PGlite;
const clock = virtualClock(new Date(BEGIN));

test.before(async (t) => {
  t.timeout(120_000); // PGlite's start takes seconds of processor time
  empty = await PGlite.create();
  const pool = pglitePool(empty);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [], logger: silent });
  await utils.release();
  await pool.end();
});
test.after.always(async () => {
  await empty?.close();
  clock.restore();
});

interface Judged extends Ran {
  readonly setup: Setup;
  /** The jobs that are left in staging, by SQL. */
  readonly staged: number;
}

/** Runs a card in a database of its own, from a moment of its own: this clock only goes forward. */
async function ranCard(t: ExecutionContext, id: string, changes: Partial<Setup> = {}): Promise<Judged> {
  t.timeout(120_000);
  const { setup: own } = PRESETS.find((preset) => preset.id === id) as Preset;
  const setup = { ...own, ...changes };
  const db = (await empty.clone()) as PGlite;
  t.teardown(() => db.close());
  const begin = clock.now.getTime();
  const ran = await simulate(setup, {
    ...{ withPgClient: withPgClientOf(db), begin, explains: true },
    goTo: (ms) => void clock.advance(ms - clock.now.getTime()),
  });
  const { rows } = await db.query<{ jobs: number }>(
    "select count(*)::int as jobs from dispatch_policy.staged_jobs",
  );
  return { ...ran, setup, staged: rows[0]?.jobs as number };
}

const sumOf = (numbers: readonly number[]) => numbers.reduce((sum, number) => sum + number, 0);

/** How many ran at each moment at which that changed. Runs end before others start. */
function runningOver({ starts, ends }: Pick<Ran, "starts" | "ends">): number[] {
  const changes = [...starts.map(({ at }) => [at, 1]), ...ends.map(({ at }) => [at, -1])] as [
    number,
    number,
  ][];
  let running = 0;
  return changes.sort(([a, by], [b, other]) => a - b || by - other).map(([, by]) => (running += by));
}

test.serial(
  "a shared limit: jobs of two policies fill its slots and never more, and all tenants take turns",
  async (t) => {
    const ran = await ranCard(t, "policies");
    const { setup, starts, frames } = ran;
    t.deepEqual([...new Set(starts.map(({ tenant }) => policyNameOf(setup, tenant)))].sort(), [
      "call_partner",
      "sync_partner",
    ]);
    t.is(Math.max(...runningOver(ran)), setup.max);
    for (const { at, tenants } of frames.slice(1)) {
      if (tenants.every(({ waiting }) => waiting === 0)) continue;
      t.is(sumOf(tenants.map(({ running }) => running)), setup.max, `no slot is idle at ${at} ms: jobs wait`);
    }
    const quarter = frames[15]?.tenants.map(({ started }) => started) as number[];
    t.true(Math.max(...quarter) - Math.min(...quarter) <= 2, `they take turns: ${quarter}`);
    t.is(starts.length, setup.jobs);
    t.is(ran.staged, 0);
  },
);

test.serial(
  "a shared throttle as well, and an operator's limit of it counts for both policies",
  async (t) => {
    const ran = await ranCard(t, "policies", {
      ...{ max: 0, rate: 1, burst: 1, night: 4, jobs: 100, run: 1 },
    });
    const within = (from: number, until: number) =>
      ran.starts.filter(({ at }) => at > from && at <= until).length;
    t.deepEqual(
      [within(0, 20_000), within(20_000, 40_000)].map((n) => Math.round(n / 20)),
      [1, 4],
    );
  },
);

/** How the runs of each tenant ended. */
const outcomes = ({ setup, ends }: Judged) =>
  tenantsOf(setup).map((_, place) => {
    const own = ends.filter(({ tenant }) => tenant === place).map(({ outcome }) => outcome);
    return [own.filter((one) => one === "cancelled").length, own.filter((one) => one === "succeeded").length];
  });

test.serial(
  "newest wins: a burst of ten of each key leaves one cancelled run and one that runs",
  async (t) => {
    const ran = await ranCard(t, "newest", { arrival: "burst", jobs: 40, skew: 0 });
    t.deepEqual(outcomes(ran), Array(4).fill([1, 1]));
    t.is(ran.staged, 0);
  },
);

test.serial("so does each burst of the card, and no two jobs of a key run at once", async (t) => {
  const ran = await ranCard(t, "newest");
  for (const place of tenantsOf(ran.setup).keys()) {
    const own = (one: Event) => one.tenant === place;
    const [starts, ends] = [ran.starts.filter(own), ran.ends.filter(own)];
    t.is(Math.max(...runningOver({ starts, ends })), 1, `tenant ${place}`);
  }
  const bursts = jobsOf(ran.setup).filter(({ n }) => n % 10 === 9);
  t.true(bursts.length > 20);
  for (const { tenant, at } of bursts) {
    const soon = (one: Event) => one.tenant === tenant && one.at > at - 10 && one.at < at + 300;
    const cancelled = ran.ends.filter((one) => soon(one) && one.outcome === "cancelled");
    t.is(cancelled.length, 1, `tenant ${tenant}, ${at} ms`);
    t.is(ran.starts.filter((one) => soon(one) && one.at >= (cancelled[0] as Event).at).length, 1);
  }
  t.true(ran.frames.some(({ tenants }) => tenants.some(({ reason }) => reason === "older_run")));
  t.is(ran.staged, 0);
});

test.serial("with minRun a cancelled run has lasted for a second, and then heeds its signal", async (t) => {
  const ran = await ranCard(t, "newest", { newest: "later", arrival: "burst", jobs: 40, skew: 0 });
  t.deepEqual(outcomes(ran), Array(4).fill([1, 1]));
  for (const { tenant, at } of ran.ends.filter(({ outcome }) => outcome === "cancelled"))
    t.is(at - (ran.starts.find((start) => start.tenant === tenant)?.at as number), 1150);
});

test.serial(
  "a job that waits for a worker when a newer one comes never runs, and leaves no slot occupied",
  async (t) => {
    const ran = await ranCard(t, "newest", { workers: 1, max: 1, arrival: "burst", jobs: 40, skew: 0 });
    t.deepEqual(outcomes(ran), [
      [1, 1],
      [0, 1],
      [0, 1],
      [0, 1],
    ]);
    t.is(ran.staged, 0);
  },
);
