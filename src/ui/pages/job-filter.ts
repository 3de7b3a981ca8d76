import type { Queryable } from "../../index.ts";
import type { OperateContext } from "../../operate/call.ts";
import { type JobRow, parameter, rowsBy } from "../../operate/view-rows.ts";
import { ifGiven } from "../if-given.ts";
import { keyIn } from "./form.ts";
import { asked } from "./visit.ts";

const [ERROR, QUEUE, KEY] = [parameter(4, "text"), parameter(5, "text"), parameter(6, "text")];
const [SINCE, AFTER, COUNT] = [parameter(7, "time"), parameter(8, "id"), parameter(9, "int")];
const [STATES, PARTITION_IDS] = [parameter(10, "texts"), parameter(10, "uuids")];
const ALIKE = 11;

/**
 * By which id jobs are in order. The staged one stays the same when a job is admitted. Graphile Worker's is the place of those that
 * never had one.
 */
export type Place = "id" | "staged_id";

const PLACES: Readonly<Record<Place, string>> = { id: "id", staged_id: "coalesce(staged_id, id)" };

/** The condition of a filter, for a view whose columns have these names. */
function whereOf({ error, key, place }: Readonly<Record<"error" | "key" | "place", string>>): string {
  return `${ifGiven(1, "policy")} and ${ifGiven(2, "partition")} and ${ifGiven(3, "task_identifier")}
    and (${ERROR} is null or pg_catalog.strpos(${error}, ${ERROR}) > 0) and (${QUEUE} is null or queue_name = ${QUEUE})
    and (${KEY} is null or ${key} = ${KEY}) and (${SINCE} is null or created_at >= ${SINCE})
    and (${AFTER} is null or ${place} > ${AFTER})`;
}

/** By their ids PostgreSQL finds the jobs of a partition in an index. By the key alone it reads all that wait. */
const STAGED = `where job_id is null and (${PARTITION_IDS} is null or partition_id between (${PARTITION_IDS})[1] and (${PARTITION_IDS})[2])
    and ${whereOf({ error: "error", key: "job_key", place: "id" })}`;
const STAGED_PAGE = `${STAGED} order by id limit ${COUNT}`;

function othersBy(place: Place): string {
  const where = whereOf({ error: "last_error", key: "key", place: PLACES[place] });
  return `where state <> 'staged' and (${STATES} is null or state = any(${STATES})) and ${ifGiven(ALIKE, "error_pattern")} and ${where}`;
}

/** How far back a page may go, by what the address says. */
export const BACK = { "1 hour": 3_600_000, "1 day": 86_400_000, "7 days": 604_800_000 } as const;

/** `alike`: the `error_pattern` of Graphile Worker's jobs in the view `jobs`. Staged ones have not failed. */
export const FILTERS = [
  "state",
  "policy",
  "partition",
  "task",
  "queue",
  "key",
  "error",
  "added",
  "alike",
] as const;

export type Filter = Readonly<Record<(typeof FILTERS)[number], string | undefined>>;

export interface FoundJob extends JobRow {
  readonly stagedId: string | null;
}

/** A job that failed for good. Of its error only the beginning of the first line. */
export interface FailedJob extends FoundJob {
  readonly failedAt: Date;
  readonly errorPattern: string | null;
}

export interface Wanted {
  /** Undefined: those of the filter. */
  readonly states?: readonly string[] | undefined;
  readonly place: Place;
  /** Only jobs behind this place. */
  readonly after?: string | undefined;
  readonly most: number;
}

/** The field of the form in which somebody writes the key of a partition. In an address `partition` may be empty: that is a key. */
export const WRITTEN = "in";

export function filterOf(query: URLSearchParams): Filter {
  const given = Object.fromEntries(FILTERS.map((name) => [name, asked(query, name)])) as Filter;
  return { ...given, partition: keyIn(query.get(WRITTEN)) ?? query.get("partition") ?? undefined };
}

export function placeOf({ id, stagedId }: FoundJob, place: Place): bigint {
  return BigInt(place === "id" ? id : (stagedId ?? id));
}

/** The first jobs that match. Staged ones and Graphile Worker's are each asked for by themselves. */
export async function jobsOf(
  looking: OperateContext,
  filter: Filter,
  wanted: Wanted,
): Promise<readonly FoundJob[]> {
  const { engine } = looking;
  const { place, most } = wanted;
  const { values, others: ofOthers, hasStaged, hasOthers } = boundsOf(filter, wanted);
  const othersPage = `${othersBy(place)} order by ${PLACES[place]} limit ${COUNT}`;
  const staged = hasStaged
    ? await rowsBy<FoundJob>(looking, async (client) =>
        engine.stagedPage(client, STAGED_PAGE, [...values, await partitionIds(engine, client, filter)]),
      )
    : [];
  const others = hasOthers
    ? await rowsBy<FoundJob>(looking, (client) =>
        engine.workerJobs(client, othersPage, [...values, ...ofOthers]),
      )
    : [];
  return [...staged, ...others]
    .toSorted((one, other) => (placeOf(one, place) < placeOf(other, place) ? -1 : 1))
    .slice(0, most);
}

/**
 * Failed jobs that match, those first that failed last. Graphile Worker has no index by state, nor by time: at most so many of the
 * jobs that were added last.
 */
export async function failedJobs(
  looking: OperateContext,
  filter: Filter,
  most: number,
): Promise<readonly FailedJob[]> {
  const { values, others } = boundsOf(filter, { states: ["failed"], place: "id", most });
  const last = `${othersBy("id")} limit ${COUNT}`;
  const found = await rowsBy<FailedJob>(looking, (client) =>
    looking.engine.newestJobs(client, last, [...values, ...others]),
  );
  return found.toSorted((one, other) => Number(other.failedAt) - Number(one.failedAt)); // it keeps the order of ids
}

/** How many jobs match, at most so many. */
export async function countJobs(looking: OperateContext, filter: Filter, wanted: Wanted): Promise<number> {
  const { engine, withPgClient } = looking;
  const { values, others: ofOthers, hasStaged, hasOthers } = boundsOf(filter, wanted);
  const count = async (client: Queryable, view: string, where: string, ...own: unknown[]) =>
    engine.countRows(client, view, `${where} limit ${COUNT}`, [...values, ...own]);
  const staged = hasStaged
    ? await withPgClient(async (client) =>
        count(client, "staged_jobs", STAGED, await partitionIds(engine, client, filter)),
      )
    : 0;
  const others = hasOthers
    ? await withPgClient((client) => count(client, "jobs", othersBy(wanted.place), ...ofOthers))
    : 0;
  return Math.min(staged + others, wanted.most);
}

/** Null: the filter names no partition of a policy. */
async function partitionIds(
  engine: OperateContext["engine"],
  client: Queryable,
  { policy, partition }: Filter,
): Promise<string[] | null> {
  if (policy === undefined || partition === undefined) return null;
  return engine.partitionIds(client, policy, partition);
}

function boundsOf(filter: Filter, { states: wanted, after, most }: Wanted) {
  const { state, policy, partition, task, error, queue, key, added, alike } = filter;
  const back = added !== undefined && Object.hasOwn(BACK, added) ? BACK[added as keyof typeof BACK] : null;
  const since = back === null ? undefined : new Date(Date.now() - back);
  const states = wanted ?? (state === undefined ? null : [state]);
  return {
    values: [policy, partition, task, error, queue, key, since, after, most].map((value) => value ?? null),
    others: [states, alike ?? null],
    hasStaged: alike === undefined && (states === null || states.includes("staged")),
    hasOthers: states?.some((one) => one !== "staged") ?? true,
  };
}
