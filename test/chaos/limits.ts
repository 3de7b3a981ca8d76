// What limiters allowed at each time, and which gates partitions had. The transactions that change them log it. Processes
// bring other definitions while a run goes on, so the judge asks this log what was in force.
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import type pg from "pg";
import { isOutage } from "../../src/db/outage.ts";
import type { Stretch } from "./rates.ts";
import { limitsOfPartitions } from "./tables.ts";
import { accounts, DEFINITIONS, type Limits, regionOf, TASKS, type TaskName, TOGETHER } from "./world.ts";

/** A limiter's numbers from a time on. Times are in milliseconds, by the database's clock. */
export interface LimitChange {
  /** The policy, or the shared limit. */
  readonly task: string;
  readonly gate: string;
  /** The scope key: an account, a region, or nothing. */
  readonly key: string;
  /** Another one has another life: a limiter that was deleted and made again. */
  readonly limiter: string;
  readonly max: number | null;
  readonly rate: number | null;
  readonly capacity: number | null;
  readonly version: number;
  /** A throttle's: up to this time its tokens flowed in at the rate before. */
  readonly filledAt: number | null;
  readonly at: number;
}

/**
 * The gates of an account's partition from a time on, and which definition brought them: `version` is its `generation`, which
 * also rises when an older one comes into force again.
 */
export interface GatesChange {
  readonly task: TaskName;
  readonly account: string;
  readonly gates: readonly string[];
  readonly version: number;
  readonly at: number;
}

/** The limits of all partitions have been worked out by this version. The router still has to apply them. */
export interface Resolved {
  readonly task: TaskName;
  readonly version: number;
  readonly at: number;
}

export interface LimitsLog {
  readonly limits: readonly LimitChange[];
  readonly gates: readonly GatesChange[];
  readonly resolved: readonly Resolved[];
  /** How often another definition came into force, of all policies. */
  readonly definitions: number;
}

/** A router may come this much later, because the server restarts or has no connection left. */
const ROUTED_WITHIN_MS = 20_000;

const AGAIN_MS = 100;
const ms = (time: string) => `(extract(epoch from ${time}) * 1000)::float8`;

/** The server may restart at this moment, or have no connection left. */
export async function readLimits(pool: pg.Pool): Promise<LimitsLog> {
  const rowsOf = async (text: string) => {
    for (;;) {
      try {
        return (await pool.query(text)).rows;
      } catch (error) {
        if (!isOutage(error)) throw error;
        await delay(AGAIN_MS);
      }
    }
  };
  return {
    limits: await rowsOf(
      `select limiter, task, gate, key, max, rate, capacity, version, ${ms("filled_at")} as "filledAt", ${ms("at")} as at
       from public.chaos_limits order by at`,
    ),
    gates: await rowsOf(
      `select task, account, gates, version, ${ms("at")} as at from public.chaos_gates order by at`,
    ),
    resolved: await rowsOf(`select task, version, ${ms("at")} as at from public.chaos_resolved order by at`),
    definitions: (await rowsOf("select count(*)::int as n from public.chaos_definitions"))[0].n,
  };
}

/** The partitions that have other limits than a definition says, each with those that it has. */
export async function otherLimits(
  pool: pg.Pool,
  { caps, rates, share, together }: Limits,
): Promise<string[]> {
  const expected = {
    work: {
      concurrency: caps.account,
      all: caps.all,
      together,
      ...(caps.region !== null && { region: caps.region }),
    },
    call: { throttle: rates.account.rate, all: rates.all.rate },
    render: { concurrency: share, together },
  };
  return (await limitsOfPartitions(pool))
    .filter(({ task, had }) => !isDeepStrictEqual(had, expected[task]))
    .map(({ task, account, had }) => `${task} ${account} has ${JSON.stringify(had)}`);
}

/** As if a definition came into force for everybody at this moment. */
export function inForce(
  { caps, rates, share, together }: Limits,
  { at = Number.NEGATIVE_INFINITY, version = 0 } = {},
): LimitsLog {
  const none = { max: null, rate: null, capacity: null, filledAt: null };
  const limitOf = (task: string, gate: string, key: string, numbers: object): LimitChange => ({
    ...{ task, gate, key, limiter: `${task} ${gate} ${key}`, ...none, version, at },
    ...numbers,
  });
  const regions = [...new Set(accounts.map(regionOf))];
  const gatesOf = {
    work: ["concurrency", "all", TOGETHER, ...(caps.region === null ? [] : ["region"])],
    call: ["throttle", "all"],
    render: ["concurrency", TOGETHER],
  };
  return {
    limits: [
      ...accounts.map((account) => limitOf("work", "concurrency", account, { max: caps.account })),
      ...(caps.region === null
        ? []
        : regions.map((region) => limitOf("work", "region", region, { max: caps.region }))),
      limitOf("work", "all", "", { max: caps.all }),
      limitOf(TOGETHER, TOGETHER, "", { max: together }),
      ...accounts.map((account) => limitOf("call", "throttle", account, rates.account)),
      limitOf("call", "all", "", rates.all),
      ...regions.map((region) => limitOf("render", "concurrency", region, { max: share })),
    ],
    gates: TASKS.flatMap((task) =>
      accounts.map((account) => ({ task, account, gates: gatesOf[task], version, at })),
    ),
    resolved: version === 0 ? [] : TASKS.map((task) => ({ task, version, at })),
    definitions: 0,
  };
}

/** What is asked of a log. */
export class LimitsInForce {
  readonly #limits: Map<string, LimitChange[]>;
  readonly #gates: Map<string, GatesChange[]>;
  readonly #resolved: readonly Resolved[];

  constructor({ limits, gates, resolved }: LimitsLog = inForce(DEFINITIONS.first)) {
    this.#limits = Map.groupBy(limits, (one) => scopeOf(one.task, one.gate, one.key));
    this.#gates = Map.groupBy(gates, (one) => scopeOf(one.task, one.account));
    this.#resolved = resolved;
  }

  /** The most that a cap allowed at some time of a stretch. */
  capIn(task: string, gate: string, key: string, from: number, to: number): number {
    const changes = during(this.#limits.get(scopeOf(task, gate, key)) ?? [], from, to);
    return Math.max(0, ...changes.map(({ max }) => max ?? 0));
  }

  /** Whether an account's partition had a gate all the time. */
  hasGate(task: TaskName, gate: string, account: string, from: number, to: number): boolean {
    return during(this.#gates.get(scopeOf(task, account)) ?? [], from, to).every(({ gates }) =>
      gates.includes(gate),
    );
  }

  /** What a bucket had, one time after the other. If two definitions may apply, the larger numbers. */
  bucket(gate: string, key: string): Stretch[] {
    const changes = this.#limits.get(scopeOf("call", gate, key)) ?? [];
    const reach = changes.map(({ at, filledAt }, place) => ({
      from: Math.min(at, filledAt ?? at),
      to: changes[place + 1]?.at ?? Number.POSITIVE_INFINITY,
    }));
    const turns = [...new Set(reach.flatMap(({ from, to }) => [from, to]))].sort((a, b) => a - b);
    return turns.slice(0, -1).map((from) => {
      const apply = changes.filter((_, place) => reach[place]!.from <= from && from < reach[place]!.to);
      return {
        from,
        rate: Math.max(...apply.map(({ rate }) => rate ?? 0)),
        capacity: Math.max(...apply.map(({ capacity }) => capacity ?? 0)),
      };
    });
  }

  /** The version that an account's limits must have by then, and the highest that they had in the stretch. */
  versions(task: TaskName, account: string, from: number, to: number): { due: number; had: number } {
    const due = this.#resolved
      .filter((one) => one.task === task && one.at + ROUTED_WITHIN_MS <= from)
      .map(({ version }) => version);
    const own = during(this.#gates.get(scopeOf(task, account)) ?? [], from, to);
    return { due: Math.max(0, ...due), had: Math.max(-1, ...own.map(({ version }) => version)) };
  }

  /** Limiters that took numbers of a lower version than they had. */
  wentBack(): LimitChange[] {
    return [...this.#limits.values()].flatMap((changes) =>
      changes.filter(
        (one, place) =>
          place > 0 &&
          changes[place - 1]!.limiter === one.limiter &&
          changes[place - 1]!.version > one.version,
      ),
    );
  }
}

function scopeOf(...parts: string[]): string {
  return parts.join(" ");
}

/** The changes that were in force at some time of a stretch. Those of one moment count all. */
function during<Change extends { readonly at: number }>(
  changes: readonly Change[],
  from: number,
  to: number,
) {
  return changes.filter(
    ({ at }, place) => at <= to && (changes[place + 1]?.at ?? Number.POSITIVE_INFINITY) >= from,
  );
}
