// What applications, operators and others do at any time, each as one call or in a transaction that stays open.
import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { addPast } from "../helpers/native.ts";
import { routineOf } from "../helpers/table.ts";
import type { Judge } from "./judge.ts";
import { Done } from "./ledger.ts";
import * as tables from "./tables.ts";
import { HOSTS, type World } from "./world.ts";

/** More than this many staged jobs, and nobody adds any. */
const ENOUGH = 120;
/** How many keys are in use at a time, of each kind, and for how long: then others are. */
const KEYS = 3;
const KEYS_LAST_MS = 400;
/** How many queues are fresh at a time, and how long they and a task are so. Who adds the first job of one inserts its row. */
const QUEUES = 3;
const FRESH_FOR_MS = 300;

const KEPT = "kept";

type As = pg.Pool | pg.PoolClient;
/** One call, whose effect stands in `done` once it is committed. */
type Operation = (as: As, done: Done) => Promise<unknown>;

/** `counts` says how often what happened, for the log. */
export function makeOperations(world: World, judge: Judge, counts: Record<string, number>) {
  const { it, pool, random, partitions, tasks, gates, variant } = world;
  const { ledger } = judge;
  const isUnique = variant.uniqueForSeconds !== undefined;
  /** No verb may end a witness, and each must run: so each of its keys has a newest job that nobody excuses. */
  const key = (witness: boolean) =>
    `${witness ? KEPT : "key"}${Math.floor(performance.now() / KEYS_LAST_MS)}.${random.below(KEYS)}`;
  const period = () => Math.floor(performance.now() / FRESH_FOR_MS);
  const freshQueue = () => `queue${period()}.${random.below(QUEUES)}`;
  const freshTask = () => tasks[period() % tasks.length]!;
  const someTask = () => (random.chance(0.4) ? freshTask() : it.policy);
  /** An order that the seed repeats: random() of PostgreSQL has a seed of its own in each session. */
  const shuffled = (column: string) => `md5((${column})::text || '${random.below(2 ** 31)}')`;
  const call = (as: As, text: string, values: unknown[] = []) =>
    as.query(`select * from ${routineOf(text)}`, values);
  const native = (as: As, text: string, values: unknown[] = []) =>
    as.query(`select * from graphile_worker.${text}`, values);

  const add: Operation = async (as, done) => {
    if ((await it.table("staged_jobs").count()) > ENOUGH) return;
    const keyed = random.chance(0.4);
    const known = isUnique && keyed && random.chance(0.5) ? await rememberedKey() : null;
    const witness = known ? known.startsWith(KEPT) : random.chance(0.3);
    const keys = keyed ? [random.pick(partitions)] : [random.pick(partitions), random.pick(partitions)];
    const jobKey = known ?? (keyed ? key(witness) : null);
    const options = {
      priority: random.below(3),
      ...(jobKey && { jobKey }),
      task: someTask(),
      ...(random.chance(0.3) && { queueName: freshQueue() }),
      ...(random.chance(0.2) && { runAt: new Date(Date.now() + random.between(0, 300)) }),
      ...(variant.debounces && jobKey && { wait: random.between(0, 0.1), maxWait: 0.15 }),
    };
    const batch = it.batch(keys, options) as { jobs: object[] };
    const jobs = batch.jobs.map((job, n) => ({
      ...job,
      payload: payloadOf(keys[n]!, jobKey, witness, done),
    }));
    const last = done.added.length - 1;
    const stage = random.chance(0.3) ? stageGroup(done) : "_stage($1, 'replace')";
    const text = `select id from ${routineOf(stage)} where staged and job is not null`; // a dropped one
    const { rows } = await as.query(text, [JSON.stringify([{ ...batch, jobs }])]);
    if (rows.length > 0) done.dropped.push(...done.added.splice(last, 1));
  };

  /** With a callback, which is a witness: however its jobs end, it must run, and once. */
  function stageGroup(done: Done): string {
    const payload = payloadOf(random.pick(partitions), null, true, done);
    const then = JSON.stringify({ policy: it.policy, identifier: it.policy, payload });
    counts["add a group"] = (counts["add a group"] ?? 0) + 1;
    return `enqueue_group($1, 'replace', null, '${then}')`;
  }

  /** One whose job has completed: mostly the job that is added is dropped. Null: there is none. */
  async function rememberedKey(): Promise<string | null> {
    const { rows } = await pool.query(tables.rememberedKey(shuffled));
    return rows[0]?.job_key ?? null;
  }

  /** Past the policy: with a key of others, with flags of others, of a task without a policy. */
  const addNative: Operation = async (as, done) => {
    const task = random.chance(0.2) ? "plain" : someTask();
    const queueName = random.chance(0.3) ? freshQueue() : undefined;
    const witness = random.chance(0.3);
    const jobKey = random.chance(0.6) ? key(witness) : null;
    const flags = random.chance(0.3) ? await someFlags(jobKey) : undefined;
    const payload = payloadOf(random.pick(partitions), jobKey, witness, done);
    const id = await addPast(it, {
      ...{ task, payload, as, ...(jobKey && { key: jobKey }) },
      ...{ ...(flags && { flags }), ...(queueName && { queueName }) },
    });
    if (id !== null) return;
    // Graphile Worker adds nothing, and returns null, if a worker fetches the job of the key at that moment
    done.added.pop();
    counts["added nothing natively"] = (counts["added nothing natively"] ?? 0) + 1;
  };

  /** Brings a queue or a task in that staged jobs wait for, if there is one. */
  async function awaited(what: "queue_name" | "task_identifier"): Promise<string | null> {
    const { rows } = await pool.query(tables.awaited(what, shuffled));
    return rows[0]?.name ?? null;
  }

  const addToNewQueue: Operation = async (as) => {
    const queueName = (await awaited("queue_name")) ?? freshQueue();
    await addPast(it, { task: "plain", as, queueName });
  };

  const addOfNewTask: Operation = async (as, done) => {
    const task = (await awaited("task_identifier")) ?? freshTask();
    await addPast(it, { task, as, payload: payloadOf(random.pick(partitions), null, false, done) });
  };

  function payloadOf(k: string, jobKey: string | null, witness: boolean, done: Done): object {
    const id = ledger.adds(jobKey, witness);
    done.added.push(id);
    return { k, id, ...(witness && { witness }) };
  }

  /** Not of a job of the same key: with the row of that one, it would count as that one (docs/guarantees.md). */
  async function someFlags(jobKey: string | null): Promise<string[] | undefined> {
    const { rows } = await pool.query(
      `select flags from graphile_worker.jobs where flags is not null and (key = $1) is not true
       order by ${shuffled("id")} limit 1`,
      [jobKey],
    );
    return rows[0] && Object.keys(rows[0].flags);
  }

  /** Staged jobs and Graphile Worker's. Those that a verb may end are no witnesses. */
  async function some(limit = 2, mayEnd = false): Promise<{ id: string; payload_id: string; key: string }[]> {
    const { rows } = await pool.query(tables.someJobs(shuffled), [limit, mayEnd]);
    return rows;
  }
  const ids = async (limit = 2) => (await some(limit)).map(({ id }) => id);

  async function nativeIds(mayEnd = false): Promise<string[]> {
    const { rows } = await pool.query(tables.nativeJobs(shuffled), [mayEnd]);
    return rows.map(({ id }) => id);
  }

  /** Verbs that answer with the jobs they ended. A row's next job has the same key, so it is no witness either. */
  function ends(verb: string, rest = ""): Operation {
    return async (as, done) => {
      const list = verb.startsWith("graphile")
        ? await nativeIds(true)
        : (await some(2, true)).map(({ id }) => id);
      const { rows } = await as.query(`select payload from ${verb}($1${rest})`, [list]);
      done.ended.push(...rows.map(({ payload }) => payload.id));
    };
  }

  const remove: Operation = async (as, done) => {
    const jobs = await some(2, true);
    const { rows } = await call(as, "remove(ids => $1)", [jobs.map(({ id }) => id)]);
    if (rows[0].changed === 0) return;
    done.ended.push(...jobs.map(({ payload_id }) => payload_id));
    done.endedKeys.push(...jobs.map((job) => job.key).filter((one) => one !== null));
  };

  const move: Operation = (as) =>
    call(as, "move('p', $1, to_partition => $2, count => 3)", [
      random.pick(partitions.slice(1)),
      partitions[0],
    ]);

  function removeJob(schema: string): Operation {
    return async (as, done) => {
      const jobKey = key(false);
      const { rows } = await as.query(`select id from ${schema}.remove_job($1)`, [jobKey]);
      if (rows[0].id !== null) done.endedKeys.push(jobKey);
    };
  }

  /** By hand. */
  const giveSlotBack: Operation = async (as) => {
    const { rows } = await pool.query(
      `select job_id from dispatch_policy.in_flight_jobs order by ${shuffled("job_id")} limit 1`,
    );
    if (!rows[0]) return;
    judge.excuse(rows[0].job_id);
    await call(as, "release_slots($1)", [rows[0].job_id]);
    judge.excuse(rows[0].job_id);
  };

  /** In one transaction, so that nobody else sees the policy switched off. */
  async function unstage(): Promise<void> {
    await inTransaction(async (client) => {
      await call(client, "switch_policy('p', false)");
      await call(client, "unstage('p', $1)", [1 + random.below(4)]);
      await call(client, "switch_policy('p', true)");
      return true;
    });
  }

  const takeSomething: Operation = async (as, done) => {
    const { rows } = await pool.query(
      `select gate, scope_key as key from dispatch_policy.limiters where kind = 'throttle'
       order by ${shuffled("gate || scope_key")} limit 1`,
    );
    if (!rows[0]) return;
    const { gate, key: scopeKey } = rows[0];
    const from = Date.now();
    const answer = await call(as, "take('p', $1, $2)", [gate, scopeKey]);
    if (answer.rows[0].taken) done.charges.push({ gate, key: scopeKey, from, to: Date.now() + 1 });
  };

  /** A partner says what is left. */
  const lowerSomething: Operation = async (as) => {
    const { rows } = await pool.query(
      `select gate, scope_key as key from dispatch_policy.limiters where kind = 'throttle'
       order by ${shuffled("gate || scope_key")} limit 1`,
    );
    if (!rows[0]) return;
    const { gate, key: scopeKey } = rows[0];
    const resetAt = random.pick([null, new Date(Date.now() + random.between(-100, 500))]);
    await call(as, "sync('p', $1, $2, key => $3, reset_at => $4)", [
      gate,
      random.below(4),
      scopeKey,
      resetAt,
    ]);
  };

  /** Others may see which jobs passed no gate: see `logCharges`. */
  async function force(): Promise<void> {
    await inTransaction(async (client) => {
      await client.query("set local fuzz.forced = 'on'");
      const partition = random.chance(0.5) ? random.pick(partitions) : null;
      await call(client, "admit('p', 2, partition => $1)", [partition]);
      return random.chance(0.9);
    });
  }

  const setLimit =
    (lasts: string): Operation =>
    (as) => {
      const { name, values } = random.pick(gates);
      return call(as, `set_limit('p', $1, $2, ${lasts})`, [name, values(random)]);
    };

  const byHost = () => JSON.stringify({ host: random.pick(HOSTS) });

  /** For the partitions of a host. None is higher than that of the plan "free", because the limit that was set last counts. */
  const setLimitByContext =
    (lasts: string): Operation =>
    (as) => {
      const [gate, { max, rate, burst }] = random.pick(Object.entries(variant.free ?? {}));
      const set = rate ? { rate: rate * random.between(0.3, 1), burst } : { max: random.below(max! + 1) };
      return call(as, `set_limit('p', $1, $2, "where" => $3, ${lasts})`, [gate, set, byHost()]);
    };

  const clearLimitByContext: Operation = (as) =>
    call(as, `clear_limit('p', $1, "where" => $2)`, [random.pick(Object.keys(variant.free ?? {})), byHost()]);

  /** As a process that has the policy does it: limits of the other host begin to count, and end with the next job. */
  const refreshContext: Operation = async (as) => {
    const partition = random.pick(partitions);
    const { rows } = await call(as, "_contexts_to_refresh('p', $1, null, null, 1)", [partition]);
    if (!rows[0]) return;
    const { context, arrival_id: arrivalId } = rows[0];
    const refreshed = {
      ...world.partitionState(partition),
      ...{ context: { ...context, host: random.pick(HOSTS) }, arrivalId },
    };
    await call(as, "_refresh_contexts('p', 'hash', $1, null, null)", [JSON.stringify([refreshed])]);
  };

  /** Also in transactions that stay open. */
  const operations: Record<string, Operation> = {
    hold: (as) => call(as, `hold('p', $1, "for" => '80 ms')`, [random.pick(partitions)]),
    pause: (as) =>
      call(as, "pause('p', partition => $1, until => clock_timestamp() + interval '100 ms')", [
        random.pick(partitions),
      ]),
    resume: (as) => call(as, "resume('p', partition => $1)", [random.pick(partitions)]),
    move,
    remove,
    "complete jobs": ends("dispatch_policy.complete_jobs"),
    "fail jobs": ends("dispatch_policy.permanently_fail_jobs", ", 'x'"),
    reschedule: async (as) =>
      call(as, "reschedule_jobs($1, run_at => clock_timestamp() + $2::interval, attempts => $3)", [
        await ids(),
        random.pick(["50 ms", "0", "2 s"]),
        random.pick([null, 0]),
      ]),
    "remove a job": removeJob("dispatch_policy"),
    "complete natively": ends("graphile_worker.complete_jobs"),
    "fail natively": ends("graphile_worker.permanently_fail_jobs", ", 'x'"),
    "run again natively": async (as) =>
      native(as, "reschedule_jobs($1, run_at => now(), attempts => 0)", [await nativeIds()]),
    "postpone natively": async (as) =>
      native(as, "reschedule_jobs($1, run_at => now() + interval '100 ms')", [await nativeIds()]),
    "remove natively": removeJob("graphile_worker"),
    "add natively": addNative,
    take: takeSomething,
    adopt: (as) => call(as, "adopt($1, $2)", [someTask(), 1 + random.below(4)]),
    "free a slot": giveSlotBack,
  };
  const overriding: Record<string, Operation> = {
    "set a limit for a moment": setLimit("until => clock_timestamp() + interval '150 ms'"),
    "set a limit": setLimit("reason => 'fuzz'"),
    "clear a limit": (as) => call(as, "clear_limit('p', $1)", [random.pick(gates).name]),
  };
  const byContext: Record<string, Operation> = {
    "set a limit by context for a moment": setLimitByContext(
      "until => clock_timestamp() + interval '150 ms'",
    ),
    "set a limit by context": setLimitByContext("reason => 'fuzz'"),
    "clear a limit by context": clearLimitByContext,
    "refresh a context": refreshContext,
  };
  /** Only in transactions that stay open. */
  const touches: Record<string, Operation> = {
    add,
    "new queue": addToNewQueue,
    "new task": variant.otherTasks ? addOfNewTask : addToNewQueue,
  };
  const verbs = {
    ...operations,
    ...(variant.overrides && overriding),
    ...(variant.settles && { "lower a throttle": lowerSomething }),
    ...(variant.free && byContext),
  };
  const alone: Record<string, () => Promise<unknown>> = {
    ...Object.fromEntries(Object.entries(verbs).map(([name, verb]) => [name, () => atOnce(verb)])),
    "add natively, again": () => atOnce(addNative),
    unstage: unstage,
    ...(variant.forced && { force, "force again": force }),
  };
  const open = { ...verbs, ...touches };

  async function atOnce(operation: Operation): Promise<void> {
    const done = new Done();
    let committed = false;
    try {
      await operation(pool, done);
      committed = true;
    } finally {
      ledger.settle(done, committed);
    }
  }

  /** `act` says whether it commits. */
  async function inTransaction(act: (client: pg.PoolClient, done: Done) => Promise<boolean>): Promise<void> {
    const client = await pool.connect();
    const done = new Done();
    let committed = false;
    try {
      await client.query("begin");
      const commits = await act(client, done);
      await client.query(commits ? "commit" : "rollback");
      committed = commits;
    } catch (error) {
      await client.query("rollback");
      throw error;
    } finally {
      ledger.settle(done, committed);
      client.release();
    }
  }

  const pick = (list: Record<string, unknown>) => random.pick(Object.keys(list));

  return {
    add: () => atOnce(add),
    /** One call of a verb, with its name. */
    operate(): { readonly name: string; act(): Promise<unknown> } {
      const name = pick(alone);
      return { name, act: alone[name]! };
    },
    /** Leaves a transaction open, with whatever it has touched. */
    openTransaction(): { readonly name: string; act(): Promise<unknown> } {
      // else admission hardly ever meets a row that is new
      const name = pick(random.chance(0.4) ? touches : open) as keyof typeof open;
      const act = () =>
        inTransaction(async (client, done) => {
          await open[name]!(client, done);
          await delay(random.between(20, 300));
          return random.chance(0.7);
        });
      return { name: `open: ${name}`, act };
    },
    /** Takes back what would hold the last jobs up for ever. */
    async calm(): Promise<void> {
      for (const { name } of gates) await call(pool, "clear_limit('p', $1)", [name]);
      for (const gate of Object.keys(variant.free ?? {}))
        for (const host of HOSTS)
          await call(pool, `clear_limit('p', $1, "where" => $2)`, [gate, JSON.stringify({ host })]);
    },
  };
}
