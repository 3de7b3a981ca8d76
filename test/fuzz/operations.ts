// What applications, operators and others do at any time, each as one call.
import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { addPast } from "../helpers/native.ts";
import type { Judge } from "./judge.ts";
import type { World } from "./world.ts";

/** More than this many staged jobs, and nobody adds any. */
const ENOUGH = 120;
const KEYS = 8;

type As = pg.Pool | pg.PoolClient;

export function makeOperations(world: World, judge: Judge) {
  const { it, pool, random, partitions, gates } = world;
  const key = () => `key${random.below(KEYS)}`;
  const call = (text: string, values: unknown[] = [], as: As = pool) =>
    as.query(`select * from dispatch_policy.${text}`, values);
  const native = (text: string, values: unknown[] = [], as: As = pool) =>
    as.query(`select count(*) from graphile_worker.${text}`, values);

  async function add(as: As = pool): Promise<void> {
    if ((await it.number("select count(*)::int from dispatch_policy._private_staged_jobs")) > ENOUGH) return;
    const keyed = random.chance(0.4);
    const keys = keyed ? [random.pick(partitions)] : [random.pick(partitions), random.pick(partitions)];
    const options = {
      priority: random.below(3),
      ...(keyed && { jobKey: key() }),
      ...(random.chance(0.2) && { runAt: new Date(Date.now() + random.between(0, 300)) }),
    };
    const batch = it.batch(keys, options) as { jobs: object[] };
    const jobs = batch.jobs.map((job, n) => ({ ...job, payload: { k: keys[n] } }));
    await as.query("select id from dispatch_policy._stage($1, 'replace')", [
      JSON.stringify([{ ...batch, jobs }]),
    ]);
  }

  /** Past the policy: with a key of others, with flags of others, of a task without a policy. */
  async function addNative(as: As = pool): Promise<void> {
    const flags = random.chance(0.3) ? await someFlags() : undefined;
    const task = random.chance(0.2) ? "plain" : it.policy;
    const payload = { k: random.pick(partitions) };
    await addPast(it, {
      task,
      payload,
      as,
      ...(random.chance(0.6) && { key: key() }),
      ...(flags && { flags }),
    });
  }

  async function someFlags(): Promise<string[] | undefined> {
    const { rows } = await pool.query(
      "select flags from graphile_worker.jobs where flags is not null order by random() limit 1",
    );
    return rows[0] && Object.keys(rows[0].flags);
  }

  /** Staged ids and Graphile Worker's. */
  async function ids(limit = 2): Promise<string[]> {
    const { rows } = await pool.query(
      `select id from (select id from dispatch_policy._private_staged_jobs
         union all select staged_id from dispatch_policy._private_in_flight_jobs
         union all select id from graphile_worker._private_jobs) x order by random() limit $1`,
      [limit],
    );
    return rows.map(({ id }) => id);
  }

  async function nativeIds(): Promise<string[]> {
    const { rows } = await pool.query("select id from graphile_worker.jobs order by random() limit 2");
    return rows.map(({ id }) => id);
  }

  /** By hand, or since it ran for too long. */
  async function giveSlotBack(): Promise<void> {
    const { rows } = await pool.query(
      "select job_id from dispatch_policy._private_in_flight_jobs order by random() limit 1",
    );
    if (!rows[0]) return;
    judge.excuse(rows[0].job_id);
    await call("release($1)", [rows[0].job_id]);
    judge.excuse(rows[0].job_id);
  }

  const verbs: (() => Promise<unknown>)[] = [
    () => call(`hold('p', $1, "for" => '80 ms')`, [random.pick(partitions)]),
    () =>
      call("pause('p', partition => $1, until => clock_timestamp() + interval '100 ms')", [
        random.pick(partitions),
      ]),
    () => call("resume('p', partition => $1)", [random.pick(partitions)]),
    async () => call("remove(ids => $1)", [await ids()]),
    async () => call("complete_jobs($1)", [await ids()]),
    async () => call("permanently_fail_jobs($1, 'x')", [await ids()]),
    async () =>
      call("reschedule_jobs($1, run_at => clock_timestamp() + $2::interval, attempts => $3)", [
        await ids(),
        random.pick(["50 ms", "0", "2 s"]),
        random.pick([null, 0]),
      ]),
    () => call("remove_job($1)", [key()]),
    async () => native("complete_jobs($1)", [await nativeIds()]),
    async () => native("permanently_fail_jobs($1, 'x')", [await nativeIds()]),
    async () => native("reschedule_jobs($1, run_at => now(), attempts => 0)", [await nativeIds()]),
    async () => native("reschedule_jobs($1, run_at => now() + interval '100 ms')", [await nativeIds()]),
    () => pool.query("select graphile_worker.remove_job($1)", [key()]),
    () => addNative(),
    () => addNative(),
    giveSlotBack,
  ];
  const overriding: (() => Promise<unknown>)[] = [
    () => call("admit('p', 2, partition => $1)", [random.chance(0.5) ? random.pick(partitions) : null]),
    () =>
      call("set_limit('p', $1, $2, until => clock_timestamp() + interval '150 ms')", [
        random.pick(gates),
        { max: random.below(5) },
      ]),
    () => call("set_limit('p', $1, $2)", [random.pick(gates), { max: 1 + random.below(4) }]),
    () => call("clear_limit('p', $1)", [random.pick(gates)]),
  ];

  /** Leaves a transaction open, with whatever it has touched. */
  async function openTransaction(): Promise<void> {
    const client = await pool.connect();
    try {
      await client.query("begin");
      await random.pick(touches)(client);
      await delay(random.between(20, 400));
      await client.query(random.chance(0.7) ? "commit" : "rollback");
    } catch (error) {
      await client.query("rollback");
      throw error;
    } finally {
      client.release();
    }
  }

  const touches: ((as: pg.PoolClient) => Promise<unknown>)[] = [
    add,
    addNative,
    (as) =>
      as.query("select graphile_worker.add_job('plain', queue_name => $1)", [`queue${random.below(99)}`]),
    async (as) => native("reschedule_jobs($1, priority => 1)", [await nativeIds()], as),
    (as) => call(`hold('p', $1, "for" => '50 ms')`, [random.pick(partitions)], as),
    async (as) => call("complete_jobs($1)", [await ids(1)], as),
    async (as) => call("reschedule_jobs($1, run_at => now())", [await ids(1)], as),
    takeSomething,
    ...(world.variant.overrides
      ? [(as: As) => call("set_limit('p', $1, $2)", [random.pick(gates), { max: 1 + random.below(4) }], as)]
      : []),
  ];

  async function takeSomething(as: As): Promise<void> {
    const { rows } = await pool.query(
      "select gate, scope_key from dispatch_policy.limiters where kind = 'throttle' order by random() limit 1",
    );
    if (rows[0]) await call("take('p', $1, $2)", [rows[0].gate, rows[0].scope_key], as);
  }

  return {
    add: () => add(),
    operate: () => random.pick(world.variant.overrides ? [...verbs, ...overriding] : verbs)(),
    openTransaction,
    /** Takes back what would hold the last jobs up for ever. */
    async calm(): Promise<void> {
      for (const gate of gates) await call("clear_limit('p', $1)", [gate]);
    },
  };
}
