import { EventEmitter } from "node:events";
import test, { type ExecutionContext } from "ava";
import type { Job, Task, WorkerEvents } from "graphile-worker";
import { concurrency } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { random as randomNumbers, seedOf } from "../helpers/random.ts";
import { type Ctx, type Payload, type Scenario, scenario } from "../helpers/scenario.ts";
import { workerTable } from "../helpers/table.ts";

const JOBS = 100;
const CAP = 3;

/** How each run of a job went, the most at once, and what Graphile Worker said of failures. */
async function watch(it: Scenario, crontab = "") {
  const random = randomNumbers(seedOf(it.t));
  const runs: { note: string; attempt: number }[] = [];
  let running = 0;
  let most = 0;
  const failures: string[] = [];
  const events = new EventEmitter() as WorkerEvents;
  for (const event of ["job:error", "job:failed"] as const) {
    events.on(event, ({ job }: { job: Job }) => void failures.push(`${event} of ${job.id}`));
  }
  const task: Task = async (payload, { job }) => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, random.between(0, 10)));
    const { note, _cron } = payload as { note: string; _cron?: { ts: string } };
    runs.push({ note: `${note} ${_cron?.ts ?? ""}`, attempt: job.attempts });
    running--;
  };
  await it.worker({ tasks: { p: task }, events, slots: 20, ...(crontab ? { crontab } : {}) });
  return { runs, failures, most: () => most };
}

async function addPast(it: Scenario, count: number, prefix: string): Promise<void> {
  await it.rows(
    `select graphile_worker.add_job('p', json_build_object('key', 'k', 'note', $2::text || n))
     from generate_series(1, $1::int) n`,
    [count, prefix],
  );
}

/** At least `of`: a crontab may add more while the test runs. */
async function allRanOnce(
  t: ExecutionContext,
  it: Scenario,
  seen: Awaited<ReturnType<typeof watch>>,
  of: number,
) {
  const nothingLeft = async () => {
    const [{ n }] = await it.rows("select count(*)::int as n from graphile_worker.jobs");
    return n === 0 && (await it.staged()) === 0 && (await it.inFlight()).length === 0;
  };
  await until("every job ran", async () => seen.runs.length >= of && nothingLeft(), { withinMs: 60_000 });
  t.is(new Set(seen.runs.map(({ note }) => note)).size, seen.runs.length, "each once");
  t.deepEqual([...new Set(seen.runs.map(({ attempt }) => attempt))], [1], "no attempt is lost");
  t.true(seen.most() <= CAP, `${seen.most()} at once`);
  t.deepEqual(seen.failures, []);
  t.is((await it.limiter("concurrency")).in_flight, 0);
}

const capped = { gates: [concurrency<Ctx>({ max: CAP })] };

test("scenario 29: plain add_job, 100 at once under a cap of 3", async (t) => {
  const it = await scenario(t, capped);
  const seen = await watch(it);
  await addPast(it, JOBS, "n");
  await allRanOnce(t, it, seen, JOBS);
  t.is(seen.most(), CAP, "the limit was reached");
});

test("scenario 29: an SQL trigger, beside jobs that were staged", async (t) => {
  const it = await scenario(t, capped);
  await it.rows("create table orders (id int primary key)");
  await it.rows(`create function on_order() returns trigger language plpgsql as $$
    begin
      perform graphile_worker.add_job('p', json_build_object('key', 'k', 'note', 'order ' || new.id));
      return new;
    end $$`);
  await it.rows("create trigger on_order after insert on orders for each row execute function on_order()");
  const seen = await watch(it);
  await it.rows(`insert into orders select generate_series(1, ${JOBS})`);
  for (let n = 0; n < 20; n++) await it.stage("1@k", { note: `staged ${n}` } as Partial<Payload>);
  await allRanOnce(t, it, seen, JOBS + 20);
});

test("scenario 29: crontab items of the worker", async (t) => {
  const it = await scenario(t, capped);
  const items = Array.from({ length: 10 }, (_, n) => `c${n}`);
  // as if the worker had been away for ten minutes: it adds what it missed all at once
  const known = workerTable(it.pool, "known_crontabs");
  for (const identifier of items)
    await known.add({
      identifier,
      known_since: () => "now() - interval '1 hour'",
      last_execution: () => "date_trunc('minute', now()) - interval '10 minutes'",
    });
  const crontab = items.map((id) => `* * * * * p ?id=${id}&fill=9m {key:"k",note:"${id}"}`).join("\n");
  const seen = await watch(it, crontab);
  await allRanOnce(t, it, seen, 90);
});
