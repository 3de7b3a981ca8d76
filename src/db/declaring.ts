import type { JsonObject, PolicyDefinition } from "../policy/policy.ts";
import type { Queryable, Statements } from "./statements.ts";

/** Policies, and what a new definition means for the partitions that are there. */
export function declaring({ schema, rowsAsIs, rows, first }: Statements) {
  return {
    declare: (
      client: Queryable,
      definition: PolicyDefinition,
      hash: string,
      settings: object,
      startedAt: Date,
    ) =>
      first<{ in_force: boolean; changed: boolean }>(
        client,
        `select * from ${schema}._declare_policy($1, $2, $3, $4)`,
        [JSON.stringify(definition), hash, JSON.stringify(settings), startedAt],
      ),

    policyNames: async (client: Queryable) =>
      (
        await rowsAsIs<{ name: string }>(client, `select name from ${schema}._private_policies order by name`)
      ).map((row) => row.name),

    partitionsAfter: (client: Queryable, policy: string, after: string | null, limit: number) =>
      rowsAsIs<{ id: string; key: string; context: JsonObject }>(
        client,
        `select * from ${schema}._partitions_after($1, $2, $3)`,
        [policy, after, limit],
      ),

    resolveAgain: (client: Queryable, policy: string, version: number, partitions: readonly object[]) =>
      rows(client, `select ${schema}._resolve_again($1, $2, $3)`, [
        policy,
        version,
        JSON.stringify(partitions),
      ]),
  };
}
