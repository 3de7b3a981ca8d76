import type { OperateContext } from "../../../operate/call.ts";
import type { ContextValues, PartitionTarget } from "../../../operate/targets.ts";
import type { Tenant } from "../../create-ui.ts";

/** Which partitions are a tenant's, by policy: those of these keys, and those whose context has these values. */
export interface Own {
  readonly keys: Readonly<Record<string, readonly string[]>>;
  readonly where: Readonly<Record<string, ContextValues>>;
}

export function ownOf({ partitions = {}, where = {} }: Tenant): Own {
  return { keys: partitions, where };
}

/**
 * Whether a partition is one of them. Of who names contexts the database is asked in any case, also for a policy without one
 * and for a job that is not there. Else the refusal of another's would take longer.
 */
export async function isOwn(
  { engine, withPgClient }: OperateContext,
  own: Own,
  policy: string | null | undefined,
  partition: string | null | undefined,
): Promise<boolean> {
  if (typeof policy === "string" && typeof partition === "string" && isNamed(own, policy, partition))
    return true;
  const [anything] = Object.values(own.where);
  if (anything === undefined || partition?.includes("\0")) return false; // which no key has, and PostgreSQL refuses
  const where = typeof policy === "string" ? valueIn(own.where, policy) : undefined;
  const has = await withPgClient((client) =>
    engine.hasContext(client, policy ?? null, partition ?? null, where ?? anything),
  );
  return has && where !== undefined;
}

function isNamed({ keys }: Own, policy: string, partition: string): boolean {
  return valueIn(keys, policy)?.includes(partition) ?? false;
}

function valueIn<T>(record: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

/** So many partitions are looked at for one page, of whomever: it takes some 20 ms. */
export const MOST_READ = 10_000;

/** A page of a tenant's partitions. */
export interface OwnPage {
  readonly targets: readonly PartitionTarget[];
  /** What the address of the next page says. Undefined: there is none. */
  readonly next: Readonly<Record<string, string | number>> | undefined;
}

/** First those that are named, in their order, and then those that are found by their context. */
export async function ownPage(
  looking: OperateContext,
  own: Own,
  query: URLSearchParams,
  most: number,
): Promise<OwnPage> {
  const named = Object.entries(own.keys).flatMap(([policy, keys]) =>
    keys.map((partition) => ({ policy, partition })),
  );
  const from = /^\d{1,9}$/.test(query.get("from") ?? "") ? Number(query.get("from")) : 0;
  const begun = query.get("in");
  const first = begun === null ? named.slice(from, from + most) : [];
  if (begun === null && from + most < named.length) return { targets: first, next: { from: from + most } };
  const found = await foundPage(looking, own, query, most - first.length);
  return { targets: [...first, ...found.targets], next: found.next };
}

/** Those that are found by their context, from where the page before has ended. */
async function foundPage(
  { engine, withPgClient }: OperateContext,
  own: Own,
  query: URLSearchParams,
  most: number,
): Promise<OwnPage> {
  const policies = Object.keys(own.where);
  const targets: PartitionTarget[] = [];
  let after = idIn(query);
  let left = MOST_READ;
  for (const policy of policies.slice(Math.max(policies.indexOf(query.get("in") ?? ""), 0))) {
    if (targets.length === most || left === 0) return { targets, next: { in: policy } };
    const page = { after, most: most - targets.length, mostRead: left };
    const where = own.where[policy] as ContextValues;
    const { keys, goesOn, read } = await withPgClient((client) =>
      engine.partitionsWith(client, policy, where, page),
    );
    left -= read;
    targets.push(
      ...keys
        .filter((partition) => !isNamed(own, policy, partition))
        .map((partition) => ({ policy, partition })),
    );
    if (goesOn !== null) return { targets, next: { in: policy, after: goesOn } };
    after = null;
  }
  return { targets, next: undefined };
}

function idIn(query: URLSearchParams): string | null {
  const given = query.get("after") ?? "";
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(given) ? given : null;
}
