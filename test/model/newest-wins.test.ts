// `whenRunning: "cancel"` against a model of it: random lives of two keys. Mutants must be found.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine } from "../helpers/engine.ts";
import { plantIn } from "../helpers/inside.ts";
import { completeJob, failJob, fetchJob } from "../helpers/native.ts";
import { type Random, random, seedOf } from "../helpers/random.ts";

const MAX = 2;
const KEYS = ["k", "l"];

/** A job of a key that was admitted. `ended`: it never ran, and a sweep frees its slot. */
interface Flight {
  state: "ready" | "runs" | "ended";
  cancelled: boolean;
}

/** What is known of a key. Its partition has its name. */
interface Key {
  /** At most one job of a key waits. */
  staged: "new" | "retry" | "waits" | null;
  flights: Flight[];
}

const words = ({ staged, flights }: Key) =>
  `${staged ?? "-"} | ${flights
    .map(({ state, cancelled }) => (cancelled && state === "runs" ? "told" : state))
    .toSorted()
    .join(" ")}`;

/** The rule, a second time. */
const model = {
  add(it: Key) {
    for (const one of it.flights.filter(({ state }) => state !== "ended")) {
      one.cancelled = true;
      if (one.state === "ready") one.state = "ended";
    }
    it.staged = it.flights.some(({ state }) => state === "runs") ? "waits" : "new";
  },
  tick(it: Key) {
    if (it.staged === null || it.staged === "waits" || it.flights.length >= MAX) return;
    it.staged = null;
    it.flights.push({ state: "ready", cancelled: false });
  },
  end(it: Key, one: Flight, well: boolean) {
    it.flights = it.flights.filter((other) => other !== one);
    if (!well && !one.cancelled) it.staged = "retry";
    if (it.staged === "waits") it.staged = "new";
  },
  sweep(it: Key) {
    it.flights = it.flights.filter(({ state }) => state !== "ended");
  },
};

interface Row {
  key: string;
  staged: Key["staged"];
  flights:
    | { job: string; admission: string; state: Flight["state"]; cancelled: boolean; attempt: number }[]
    | null;
}

const LOOK = `select u.key, (
    select case when s.waits_for is not null then 'waits' when s.parked_job_id is not null then 'retry' else 'new' end
    from dispatch_policy_internal.staged_jobs s
    where s.partition_id = dispatch_policy_internal._partition_id('p', u.key)) as staged, (
    select json_agg(json_build_object('job', f.job_id::text, 'admission', f.admission::text, 'attempt', j.attempts,
      'cancelled', f.cancelled_at is not null, 'state', case when j.locked_at is not null then 'runs'
        when j.attempts >= j.max_attempts then 'ended' else 'ready' end) order by f.job_id)
    from dispatch_policy_internal.in_flight_jobs f join graphile_worker.jobs j on j.id = f.job_id
    where f.partition_id = dispatch_policy_internal._partition_id('p', u.key)) as flights
  from unnest($1::text[]) u (key)`;

async function look(it: Engine): Promise<Map<string, Row>> {
  const { rows } = await it.pool.query(LOOK, [KEYS]);
  return new Map((rows as Row[]).map((row) => [row.key, row]));
}

async function endRun(
  it: Engine,
  { job, admission, attempt }: NonNullable<Row["flights"]>[number],
  well: boolean,
) {
  if (well) await completeJob(it, job);
  else await failJob(it, job, 0);
  const retry = { attempt, task: "p", after: 0, maxAttempts: 25 };
  await it.release([{ job, admission, attempt, ok: well, ...(!well && { retry }) }], it.pool, {
    passesOn: well,
  });
}

async function sweep(it: Engine): Promise<void> {
  const { rows } = await it.pool.query(
    "select job_id::text as job, admission::text, attempt, ok from dispatch_policy_internal._sweep_in_flight('0', true)",
  );
  await it.release(rows.filter(({ job }) => job !== null));
}

/** One step, of the engine and of the model. What it was, in words. */
async function step(it: Engine, keys: Map<string, Key>, { pick, unit }: Random): Promise<string> {
  const name = pick(KEYS);
  const key = keys.get(name)!;
  const chosen = unit();
  const flights = (await look(it)).get(name)!.flights ?? [];
  const one = <S extends Flight["state"]>(state: S) => {
    const real = flights.find((flight) => flight.state === state);
    const known = key.flights.find(
      (flight) => flight.state === state && flight.cancelled === real?.cancelled,
    );
    return real && known ? { real, known } : null;
  };
  if (chosen < 0.35) {
    await it.stage(name, { jobKey: name });
    model.add(key);
    return `add ${name}`;
  }
  if (chosen < 0.6) {
    await it.passes();
    for (const each of keys.values()) model.tick(each);
    return "pass";
  }
  if (chosen < 0.8) {
    const fetched = one("ready");
    if (fetched === null) return "nothing";
    await fetchJob(it, fetched.real.job);
    fetched.known.state = "runs";
    return `start ${name}`;
  }
  if (chosen < 0.95) {
    const ended = one("runs");
    const well = unit() < 0.6;
    if (ended === null) return "nothing";
    await endRun(it, ended.real, well);
    model.end(key, ended.known, well);
    return `end ${name} ${well ? "well" : "badly"}`;
  }
  await sweep(it);
  for (const each of keys.values()) model.sweep(each);
  return "sweep";
}

/** Where the engine differs from the model; null: nowhere. */
async function life(it: Engine, chance: Random, steps: number): Promise<string | null> {
  const keys = new Map<string, Key>(KEYS.map((key) => [key, { staged: null, flights: [] }]));
  const told: string[] = [];
  for (let n = 0; n < steps; n++) {
    told.push(await step(it, keys, chance));
    for (const [name, { staged, flights }] of await look(it)) {
      const real = words({ staged, flights: flights ?? [] });
      const known = words(keys.get(name)!);
      if (real !== known)
        return `${told.join(", ")}: of ${name} the engine says "${real}", the model "${known}"`;
      if ((flights ?? []).filter(({ state }) => state === "runs").length > 1)
        return `${told.join(", ")}: two of ${name} run`;
    }
  }
  const wrong = await it.wrongCounters();
  return wrong === 0 ? null : `${told.join(", ")}: ${wrong} wrong counters`;
}

const OPTIONS = { gates: [concurrency(MAX)], cancelsAfterSeconds: 0 };

test("scenario 46: the newest job of a key wins as the model says", async (t) => {
  t.timeout(600_000);
  const chance = random(seedOf(t));
  for (let n = 0; n < (process.env.TEST_ALL === "1" ? 20 : 4); n++) {
    const it = await engine(t, OPTIONS);
    t.is(await life(it, chance, 50), null);
  }
});

const MUTANTS: Record<string, { of: string; from: RegExp; to: string }> = {
  "a new job does not wait": {
    of: "_cancel_older",
    from: /set due = false, retry_at = 'infinity', waits_for = r\.job_id/,
    to: "set due = s.due",
  },
  "a further job of the key does not wait": {
    of: "_stage_batch",
    from: /retry_at = case when s\.waits_for is not null .* then s\.retry_at end/,
    to: "retry_at = null",
  },
  "nobody tells a waiting job of the end": {
    of: "_free_slots",
    from: /and _end_waits\(v_ended\.cancelled\)/,
    to: "and false",
  },
  "the small way frees the slot of a cancelled run": {
    of: "_pass_slots_on",
    from: / or v_row\.cancelled_at is not null/,
    to: "",
  },
  "a job that has not begun is taken for one that runs": {
    of: "_cancel_older",
    from: /if v_ids <> '\{\}' then\s+v_ids := _lock/,
    to: "if false then v_ids := _lock",
  },
  "a run is not cancelled": {
    of: "_cancel_older",
    from: /cancelled_at = coalesce\(f\.cancelled_at, clock_timestamp\(\)\)/,
    to: "cancelled_at = f.cancelled_at",
  },
};

async function shows(
  t: ExecutionContext,
  mutant: (typeof MUTANTS)[string] & { name: string },
): Promise<string | null> {
  const chance = random(1);
  for (let n = 0; n < 8; n++) {
    const it = await engine(t, OPTIONS);
    await plantIn(it.pool, mutant);
    const difference = await life(it, chance, 50);
    if (difference !== null) return difference;
  }
  return null;
}

for (const [name, mutant] of Object.entries(MUTANTS))
  test(`a mutant is found: ${name}`, async (t) => {
    t.timeout(600_000);
    const difference = await shows(t, { name, ...mutant });
    t.log(difference);
    t.not(difference, null);
  });
