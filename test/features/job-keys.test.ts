// Scenario 31, job keys: a governed task's jobs run exactly as a plain task's do, whatever becomes of the job of their
// key meanwhile: each story is told to both.
import test from "ava";
import type { JobHelpers, Runner } from "graphile-worker";
import { run, WorkerPreset } from "graphile-worker";
import type pg from "pg";
import { concurrency, list, throttle } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, policyOf, type Scenario, scenario } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";

interface Item {
  note: string;
  /** How many attempts fail. */
  fails?: number;
  /** Runs until it is let go. */
  holds?: boolean;
}

type Told = Item | Item[];

const GOVERNED = "p";
const TASKS = ["plain", GOVERNED];

/** A task's jobs, all of one key. Between its steps nothing runs but what is held. */
class Side {
  readonly #it: Scenario;
  readonly #task: string;
  readonly #pool: pg.Pool;
  #ran: string[] = [];
  #letGo = Promise.withResolvers<void>();
  #runner: Runner | undefined;

  constructor(it: Scenario, task: string) {
    this.#it = it;
    this.#task = task;
    this.#pool = it.connections(8);
    it.t.teardown(() => this.#stop());
  }

  async add(told: Told, spec: object = {}): Promise<void> {
    const payload = Array.isArray(told) ? told.map((item) => ({ key: "k", ...item })) : { key: "k", ...told };
    await this.#it.utils.addJob(this.#task, payload as never, { jobKey: "key", ...spec });
  }

  /** What is staged is handed to Graphile Worker; plain jobs are there. */
  async admit(): Promise<void> {
    if (this.#task === GOVERNED) await this.#it.tickNow();
  }

  async remove(): Promise<void> {
    const schema = this.#task === GOVERNED ? "dispatch_policy" : "graphile_worker";
    await this.#it.rows(`select ${schema}.remove_job('key')`);
  }

  /** Until so many attempts have begun in all. */
  async start(attempts: number): Promise<void> {
    await this.admit();
    await this.#work();
    await until(`${attempts} have begun`, () => this.#ran.length >= attempts);
  }

  /** Until so many attempts have ended in all. */
  async run(attempts: number): Promise<void> {
    await this.start(attempts);
    await this.#stop();
  }

  /** Until nothing is left to do, however late it is due. Resolves to what ran. */
  async drain(): Promise<string[]> {
    this.#letGo.resolve();
    await this.#stop();
    await this.admit(); // what was admitted before it, and is replaced by it, may have started before that
    await this.#work(1); // several slots fetch at the same time, and start in any order
    const open = "from graphile_worker.jobs where task_identifier = $1 and attempts < max_attempts";
    await until(`nothing of ${this.#task} is left`, async () => {
      if (this.#task === GOVERNED) await this.#it.tick(7200);
      else await this.#it.utils.rescheduleJobs(await this.#waiting(), { runAt: new Date() });
      const [row] = await this.#it.rows(`select count(*)::int as n ${open}`, [this.#task]);
      return row.n === 0 && (this.#task !== GOVERNED || (await this.#it.staged()) === 0);
    });
    await this.#stop();
    await this.#it.rows("select graphile_worker.remove_job('key')");
    const ran = this.#ran;
    this.#ran = [];
    this.#letGo = Promise.withResolvers();
    return ran;
  }

  async #waiting(): Promise<string[]> {
    const waiting =
      "task_identifier = $1 and locked_at is null and run_at > now() and attempts < max_attempts";
    const rows = await this.#it.rows(`select id from graphile_worker.jobs where ${waiting}`, [this.#task]);
    return rows.map((row) => row.id);
  }

  async #work(concurrency = 5): Promise<void> {
    this.#runner ??= await run({
      preset: { extends: this.#task === GOVERNED ? [WorkerPreset, this.#it.preset] : [WorkerPreset] },
      pgPool: this.#pool,
      concurrency,
      pollInterval: 100,
      noHandleSignals: true,
      logger: silent,
      taskList: { [this.#task]: (payload, helpers) => this.#perform(payload as Told, helpers) },
    });
  }

  async #stop(): Promise<void> {
    const runner = this.#runner;
    this.#runner = undefined;
    await runner?.stop();
  }

  async #perform(told: Told, { job }: JobHelpers) {
    const items = Array.isArray(told) ? told : [told];
    this.#ran.push(`${items.map(({ note }) => note).join("+")} #${job.attempts}`);
    if (items.some(({ holds }) => holds)) await this.#letGo.promise;
    const ends = items.map(async ({ note, fails = 0 }) => {
      if (job.attempts <= fails) throw new Error(note);
    });
    if (Array.isArray(told)) return ends as never;
    await ends[0];
  }
}

const MODES = ["replace", "preserve_run_at", "unsafe_dedupe"];
const one = { note: "one" };
const failing = { note: "one", fails: 1 };
const holding = { note: "one", holds: true };
const two = { note: "two" };

const STORIES: Record<string, (side: Side, spec: object) => Promise<void>> = {
  "it waits": async (side, spec) => {
    await side.add(one);
    await side.add(two, spec);
  },
  "it was admitted": async (side, spec) => {
    await side.add(one);
    await side.admit();
    await side.add(two, spec);
  },
  "it runs": async (side, spec) => {
    await side.add(holding);
    await side.start(1);
    await side.add(two, spec);
  },
  "it runs, and will fail": async (side, spec) => {
    await side.add({ ...holding, ...failing });
    await side.start(1);
    await side.add(two, spec);
  },
  "it failed": async (side, spec) => {
    await side.add(failing);
    await side.run(1);
    await side.add(two, spec);
  },
  "it failed, and so does the new one": async (side, spec) => {
    await side.add(failing);
    await side.run(1);
    await side.add({ ...two, fails: 1 }, spec);
  },
  "it failed, and so does the new one before either is due": async (side, spec) => {
    await side.add(failing);
    await side.run(1);
    await side.add({ ...two, fails: 1 }, { ...spec, jobKeyMode: "replace" });
    await side.run(2);
  },
  "it failed for good": async (side, spec) => {
    await side.add(failing, { maxAttempts: 1 });
    await side.run(1);
    await side.add(two, spec);
  },
  "it failed and was removed": async (side, spec) => {
    await side.add(failing);
    await side.run(1);
    await side.remove();
    await side.add(two, spec);
  },
  "it is a batch that waits": async (side, spec) => {
    await side.add([one]);
    await side.add([two], spec);
  },
  "it is a batch that was admitted": async (side, spec) => {
    await side.add([one]);
    await side.admit();
    await side.add([two], spec);
  },
  "it is a batch that runs": async (side, spec) => {
    await side.add([holding]);
    await side.start(1);
    await side.add([two], spec);
  },
  "it is a batch of which a part failed": async (side, spec) => {
    await side.add([{ note: "well" }, failing]);
    await side.run(1);
    await side.add([two], spec);
  },
  "it is a batch, admitted, and gets two more": async (side, spec) => {
    await side.add([one]);
    await side.admit();
    await side.add([two], spec);
    await side.add([{ note: "three" }], spec);
  },
};

for (const mode of MODES) {
  test(`scenario 31: what becomes of two jobs of one key, the second added in mode ${mode}`, async (t) => {
    t.timeout(300_000);
    const it = await scenario(
      t,
      policyOf(GOVERNED, {
        context: (payload) => ({ key: ([payload].flat() as { key: string }[])[0]?.key }) as never,
        ...{ shardBy: () => "default", weight: 1, cost: 1, backoff: list(["1 hour"]) },
        gates: [concurrency({ max: 10 })],
      }),
      { settings: { loop: false } },
    );
    const sides = TASKS.map((task) => new Side(it, task));
    for (const [when, story] of Object.entries(STORIES)) {
      const told: string[][] = [];
      for (const side of sides) {
        await story(side, { jobKeyMode: mode });
        told.push(await side.drain());
      }
      const [plain, governed] = told;
      t.deepEqual(governed, plain, when);
      t.log(`${when}: ${plain?.join(", ")}`);
      t.is((await it.limiter("concurrency")).in_flight, 0);
    }
  });
}

test("scenario 31: a parked job is removed by key: Graphile Worker keeps it as failed for good", async (t) => {
  const it = await scenario(t, { backoff: list(["1 hour"]), gates: [concurrency({ max: 1 })] });
  const hands = await it.hands();
  await it.utils.addJob("p", { key: "k" } as never, { jobKey: "key" });
  await it.tickNow();
  await hands.end(1, "badly");
  t.is(await it.staged(), 1, "it is parked");
  t.like(await it.utils.remove({ jobKey: "key", dryRun: true }), { matched: 1, changed: 0 });
  t.like(await it.utils.remove({ jobKey: "key" }), { matched: 1, changed: 1 });
  t.is(await it.staged(), 0);
  const [job] = await it.rows(
    "select attempts = max_attempts as failed, last_error from graphile_worker.jobs",
  );
  t.deepEqual(job, { failed: true, last_error: "badly" });
});

for (const how of ["complete_jobs", "permanently_fail_jobs", "remove_job"]) {
  test(`scenario 31: a parked job has nothing left to wait for after ${how}`, async (t) => {
    const it = await scenario(t, { backoff: list(["1 hour"]) });
    const hands = await it.hands();
    const { id } = await it.utils.addJob("p", { key: "k" } as never, { jobKey: "key" });
    await it.tickNow();
    await hands.end(1, "badly");
    t.is(await it.staged(), 1);
    await it.rows(`select dispatch_policy.${how}($1)`, [how === "remove_job" ? "key" : [id]]);
    t.is(await it.staged(), 0);
    t.deepEqual(await it.rows("select from graphile_worker.jobs where attempts < max_attempts"), []);
  });
}

// A job that is admitted and waits, added again under its key, where other limits are.

for (const [what, gate] of [
  ["a cap", concurrency<Ctx>({ max: (c) => c.max })],
  ["a throttle", throttle<Ctx>({ rate: (c) => c.max, per: "1 hour" })],
] as const) {
  test(`${what} of another partition holds jobs that move there under their keys`, async (t) => {
    const it = await scenario(t, { gates: [gate] });
    const add = async (key: string, max: number) => {
      for (let n = 0; n < 5; n++) await it.utils.addJob("p", { key, max } as never, { jobKey: `x${n}` });
    };
    await add("wide", 5);
    t.is((await it.tickNow()).admitted, 5);
    await add("narrow", 1);
    t.is((await it.tickNow()).admitted, 1);
    t.is((await it.tickNow()).admitted, 0);
    t.deepEqual(await it.inFlightBy(), { narrow: 1, wide: 4 });
    t.deepEqual((await it.utils.sweep()).repaired.counters, 0);
    await it.finish(5);
    const counted = await it.rows("select in_flight from dispatch_policy.limiters where in_flight <> 0");
    t.deepEqual(counted, []);
  });
}

test("a job that moves to another key of a gate counts once where it was already", async (t) => {
  const gates = [
    concurrency<Ctx>({ name: "account", scope: (c) => c.account, max: 2 }),
    concurrency<Ctx>({ name: "all", scope: "policy", max: 10 }),
  ];
  const it = await scenario(t, { gates });
  const add = async (account: string) => {
    for (let n = 0; n < 3; n++)
      await it.utils.addJob("p", { key: "k", account } as never, { jobKey: `${account[0]}${n}` });
  };
  await add("a1");
  t.is((await it.tickNow()).admitted, 2);
  await add("a2");
  t.is((await it.tickNow()).admitted, 2);
  t.is((await it.limiter("account", "a1")).in_flight, 2, "until they end");
  t.is((await it.limiter("account", "a2")).in_flight, 2);
  t.is((await it.limiter("all")).in_flight, 2);
  t.is((await it.utils.sweep()).repaired.counters, 0);
  await it.finish(2);
  t.is((await it.limiter("all")).in_flight, 0);
});

for (const mode of ["replace", "unsafe_dedupe"] as const) {
  test(`a policy that is switched off: a key that is staged still, ${mode}`, async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 0 })] });
    const add = (priority: number) =>
      it.utils.addJob("p", { key: "k" }, { jobKey: "x", jobKeyMode: mode, priority });
    const first = await add(1);
    await it.tickNow();
    await it.utils.disable({ policy: "p" });
    const second = await add(2);
    await it.tickNow();
    await it.tickNow();
    const jobs = await it.rows("select priority from graphile_worker.jobs");
    if (mode === "replace") t.deepEqual(jobs, [{ priority: 2 }]);
    else {
      t.is(second.id, first.id);
      t.deepEqual(jobs, [{ priority: 1 }]);
    }
  });
}

for (const later of ["staged", "native"] as const) {
  test(`of a job added past its policy and a staged one of its key the later one stays: ${later}`, async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 0 })], unmanaged: "enforce" });
    const native = (account: string) =>
      it.rows("select graphile_worker.add_job('p', $1::json, job_key => 'x')", [{ key: "k", account }]);
    const staged = (account: string) => it.utils.addJob("p", { key: "k", account } as never, { jobKey: "x" });
    for (const add of later === "staged" ? [native, staged] : [staged, native])
      await add(add === native ? "native" : "staged");
    await it.hands();
    await until("it is copied", async () => (await it.rows("select from graphile_worker.jobs")).length === 0);
    const rows = await it.rows("select payload ->> 'account' as account from dispatch_policy.staged_jobs");
    t.deepEqual(rows, [{ account: later }]);
  });
}

test("a cap of another policy holds jobs that move there under their keys", async (t) => {
  const gates = (max: number) => ({ gates: [concurrency<Ctx>({ max })] });
  const it = await scenario(t, gates(5), { others: [policyOf("q", gates(1))] });
  const add = async (task: string) => {
    for (let n = 0; n < 5; n++) await it.utils.addJob(task, { key: "k" } as never, { jobKey: `x${n}` });
  };
  await add("p");
  t.is((await it.tickNow()).admitted, 5);
  await add("q");
  t.is((await it.utils.tick()).admitted, 1);
  t.is((await it.utils.tick()).admitted, 0);
  const jobs = await it.rows("select job_id from dispatch_policy.in_flight_jobs");
  await it.utils.completeJobs(jobs.map((job) => job.job_id));
  t.is((await it.utils.sweep()).repaired.counters, 0);
  t.deepEqual(await it.rows("select from dispatch_policy.limiters where in_flight <> 0"), []);
  t.is((await it.utils.tick()).admitted, 1);
});
