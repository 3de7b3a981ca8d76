import type { JsonObject, PolicyDefinition } from "../policy/policy.ts";
import { parameters } from "./parameters.ts";
import type { Queryable, Statements } from "./statements.ts";

/** Who declares a policy. A host and pid of null: nobody has to know. */
export interface DeclaringProcess {
  readonly startedAt: Date;
  readonly host: string | null;
  readonly pid: number | null;
}

/**
 * Policies, and the limits that a new definition gives to existing partitions. It is long because it is a list: a method a
 * statement.
 */
export function declaring({ schema, internal, rowsAsIs, first }: Statements) {
  return {
    declare: (
      client: Queryable,
      definition: PolicyDefinition,
      hash: string,
      settings: object,
      by: DeclaringProcess,
    ) =>
      first<{ in_force: boolean; to_resolve: boolean }>(
        client,
        `select * from ${internal}._declare_policy(${parameters("jsonb", "text", "jsonb", "time", "text", "int")})`,
        [JSON.stringify(definition), hash, JSON.stringify(settings), by.startedAt, by.host, by.pid],
      ),

    /** From the view, because a role that only looks asks as well. */
    policyNames: async (client: Queryable) =>
      (
        await rowsAsIs<{ policy: string }>(client, `select policy from ${schema}.policies order by policy`)
      ).map((row) => row.policy),

    /** The tasks of all policies that the database has. */
    policyTasks: async (client: Queryable) =>
      (
        await rowsAsIs<{ task: string }>(
          client,
          `select task_identifier as task from ${internal}.policy_tasks`,
        )
      ).map((row) => row.task),

    partitionsToResolve: (client: Queryable, policy: string, after: string | null, limit: number) =>
      rowsAsIs<{ id: string; key: string; context: JsonObject; arrival_id: string }>(
        client,
        `select * from ${internal}._partitions_to_resolve(${parameters("text", "uuid", "int")})`,
        [policy, after, limit],
      ),

    /** Policies whose limits somebody began to work out again, with the hash of the definition that does. */
    resolutions: (client: Queryable) =>
      rowsAsIs<{ policy: string; hash: string; after: string | null }>(
        client,
        `select p.name as policy, d.hash, d.resolved_to as after from ${internal}.definitions d
         join ${internal}.policies p on p.id = d.policy_id where d.resolves`,
      ),

    /** False: somebody else goes on from this place, or another definition is in force. */
    resolveAgain: async (
      client: Queryable,
      { policy, hash, after }: { policy: string; hash: string; after: string | null },
      last: string | null,
      partitions: readonly object[],
    ) =>
      (
        await first<{ goes_on: boolean }>(
          client,
          `select ${internal}._resolve_again(${parameters("text", "text", "uuid", "uuid", "json")}) as goes_on`,
          [policy, hash, after, last, JSON.stringify(partitions)],
        )
      ).goes_on,

    /** A page of partitions with their newest contexts. */
    contextsToRefresh: (
      client: Queryable,
      asked: { policy: string; partition: string | null; where: string | null; after: string | null },
      limit: number,
    ) =>
      rowsAsIs<{ id: string; key: string; context: JsonObject; arrival_id: string; fits: boolean }>(
        client,
        `select * from ${internal}._contexts_to_refresh(${parameters("text", "text", "jsonb", "uuid", "int")})`,
        [asked.policy, asked.partition, asked.where, asked.after, limit],
      ),

    /** `stale`: the keys of those that got another context since it was read. */
    refreshContexts: (
      client: Queryable,
      {
        policy,
        hash,
        reason,
        by,
      }: { policy: string; hash: string; reason: string | null; by: string | null },
      partitions: readonly object[],
    ) =>
      first<{ changed: number; stale: readonly string[] }>(
        client,
        `select * from ${internal}._refresh_contexts(${parameters("text", "text", "json", "text", "text")})`,
        [policy, hash, JSON.stringify(partitions), reason, by],
      ),

    /** What a refresh of these partitions would concern. */
    refreshReach: (
      client: Queryable,
      { policy, hash }: { policy: string; hash: string },
      ids: readonly string[],
    ) =>
      first<{ partitions: number; staged: number; in_flight: number }>(
        client,
        `select * from ${internal}._refresh_reach(${parameters("text", "text", "uuids")})`,
        [policy, hash, ids],
      ),
  };
}
