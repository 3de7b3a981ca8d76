// One replay: this package's own SQL, in a PGlite whose clock we move.
import { Logger } from "graphile-worker";
import { type Engine, makeEngine, parameter, type RecordedLoad } from "../db/engine.ts";
import type { Pool } from "../db/stream-pool.ts";
import { makePolicyUtils, type PolicyUtils, type Queryable } from "../index.ts";
import { laneOf } from "../policy/limits.ts";
import { definitionHash } from "../policy/policy.ts";
import { virtualClock } from "../testing.ts";
import type { Durations } from "./durations.ts";
import { makeEnds } from "./ends.ts";
import type { Plan } from "./plan.ts";

/** A limit that an operator sets, as the SQL function `set_limit` takes it. */
export interface Limit {
  readonly gate: string;
  readonly key: string | null;
  readonly where: object | null;
  readonly set: object;
  readonly from: Date | null;
  readonly until: Date | null;
}

export interface World {
  readonly pool: Pool;
  readonly recorded: RecordedLoad;
  readonly plan: Plan;
  readonly limits: readonly Limit[];
  /** Null: no gate counts jobs in flight, so their ends matter to nobody. */
  readonly durations: Durations | null;
}

/** A replayed job. */
export interface Ran {
  readonly partition: number;
  /** When it was due. */
  readonly at: number;
  /** When it was admitted; null: it still waits at the end. */
  admittedAt: number | null;
}

const SCHEMA = "dispatch_policy";
/** The most jobs that one call stages. */
const STAGED_AT_ONCE = 1000;
/** Dead rows make look-ups slow, and a PGlite has no autovacuum. */
const TICKS_BETWEEN_VACUUMS = 500;

export async function simulate(world: World): Promise<readonly Ran[]> {
  const { pool, plan } = world;
  const clock = virtualClock(new Date(plan.from));
  try {
    await pool.query(
      "drop schema if exists dispatch_policy, dispatch_policy_internal, graphile_worker cascade",
    );
    // not those of the environment, which are for the caller's database
    const schemas = { schema: "graphile_worker", policySchema: SCHEMA };
    const logger = new Logger(() => () => {});
    const utils = await makePolicyUtils({ pgPool: pool, policies: [], logger, ...schemas });
    try {
      return await replay(world, utils, (at) => clock.advance(Math.max(0, at - Date.now())));
    } finally {
      await utils.release();
    }
  } finally {
    clock.restore();
  }
}

async function replay(world: World, utils: PolicyUtils, goTo: (at: number) => void): Promise<readonly Ran[]> {
  const { pool, plan } = world;
  const engine = makeEngine(SCHEMA);
  const policy = world.recorded.definition.name;
  await utils.withPgClient((client) => declare(engine, client, world));
  const { stage, byStagedId } = makeStaging(engine, utils, world);
  const ends = makeEnds(engine, utils, world.durations, plan.partitions);
  await stageBacklog(world, utils, engine, stage);
  let staged = 0;
  let lastJobId = "0";
  for (let ticks = 1; Date.now() < plan.until; ticks++) {
    const second = Math.floor(Date.now() / 1000) * 1000 + 1000;
    const first = staged;
    while (staged < plan.jobs.length && (plan.jobs[staged] as { at: number }).at < second) staged++;
    if (staged > first) await stage(plan.jobs.slice(first, staged));
    await ends.release(Date.now());
    const { admitted, nextEligibleAt } = await utils.tick({ policy });
    if (admitted > 0) {
      const { rows } = await pool.query<{ job_id: string; staged_id: string }>(
        `select job_id, staged_id from ${SCHEMA}_internal.in_flight_jobs where job_id > ${parameter(1, "id")} order by job_id`,
        [lastJobId],
      );
      for (const { job_id, staged_id } of rows) {
        const job = byStagedId.get(staged_id) as Ran;
        job.admittedAt = Date.now();
        ends.add(job_id, job.partition, Date.now());
        lastJobId = job_id;
      }
    }
    if (ticks % TICKS_BETWEEN_VACUUMS === 0) await pool.query("vacuum");
    const next = Math.min(
      plan.jobs[staged]?.at ?? plan.until,
      nextEligibleAt?.getTime() ?? plan.until,
      ends.nextAt() ?? plan.until,
      plan.until,
    );
    // a pass without effect is not repeated at the same moment
    goTo(Math.max(next, Date.now() + (admitted > 0 ? 0 : 1)));
  }
  return [...byStagedId.values()];
}

async function declare(engine: Engine, client: Queryable, { recorded, limits }: World): Promise<void> {
  const { definition, settings } = recorded;
  const all = { ...settings, ahead: {}, enabled: true };
  const by = { startedAt: new Date(), host: null, pid: null };
  await engine.declare(client, definition, definitionHash(definition), all, by);
  for (const { gate, key, where, set, from, until } of limits)
    await engine.call(client, "set_limit", {
      ...{ policy: definition.name, gate, key, from, until },
      ...{ where: where && JSON.stringify(where), set: JSON.stringify(set) },
    });
}

type Stage = (jobs: Plan["jobs"]) => Promise<void>;

function makeStaging(engine: Engine, utils: PolicyUtils, { recorded, plan }: World) {
  const byStagedId = new Map<string, Ran>();
  const { name: policy, version, tasks } = recorded.definition;
  const partitions = plan.partitions.map(({ key, shard, context, weight, limits }) => ({
    ...{ key, lane: laneOf(limits, weight), shard, context, weight, limits },
  }));
  const stage: Stage = async (jobs) => {
    for (let begin = 0; begin < jobs.length; begin += STAGED_AT_ONCE) {
      const part = jobs.slice(begin, begin + STAGED_AT_ONCE);
      const used = [...new Set(part.map(({ partition }) => partition))];
      const batch = {
        policy,
        version,
        partitions: used.map((place) => partitions[place] as (typeof partitions)[number]),
        jobs: part.map(({ at, partition, cost }, n) => ({
          ...{
            n,
            p: used.indexOf(partition),
            task: tasks[0] as string,
            payload: {},
            runAt: new Date(at),
            cost,
          },
        })),
      };
      const rows = await utils.withPgClient((client) => engine.stage(client, [batch], "replace"));
      for (const { id, n } of rows) {
        const { at, partition } = part[n] as Plan["jobs"][number];
        if (id !== null) byStagedId.set(id, { partition, at, admittedAt: null });
      }
    }
  };
  return { stage, byStagedId };
}

/** Jobs that waited at the beginning. Nobody knows what their throttles had left: most likely nothing, because they waited. */
async function stageBacklog(
  { pool, plan, recorded }: World,
  utils: PolicyUtils,
  engine: Engine,
  stage: Stage,
) {
  const waiting = plan.partitions.flatMap(({ replayedBacklog }, partition) =>
    Array.from({ length: replayedBacklog }, () => ({ at: plan.from, partition, cost: 1 })),
  );
  if (waiting.length === 0) return;
  await stage(waiting);
  const step = { policy: recorded.definition.name, now: null, max: 1_000_000 };
  await utils.withPgClient((client) => engine.route(client, step));
  await pool.query(
    `update ${SCHEMA}_internal.limiters set tokens = 0, refilled_at = ${parameter(1, "time")} where by_tokens and breadth = 0`,
    [new Date(plan.from)],
  );
}
