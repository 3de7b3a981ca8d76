import { answersAsPg } from "../db/answers.ts";
import type { Queryable } from "../index.ts";

/** What a `Kysely` or a `Transaction` of Kysely has. */
export interface KyselyLike {
  withoutPlugins(): { executeQuery(query: CompiledText): Promise<{ rows: unknown[] }> };
}

/** Kysely's `CompiledQuery`, as `CompiledQuery.raw` makes it. */
interface CompiledText {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  readonly query: {
    readonly kind: "RawNode";
    readonly sqlFragments: readonly string[];
    readonly parameters: [];
  };
  readonly queryId: { readonly queryId: string };
}

/**
 * A client for {@link addPolicyJob} and {@link addPolicyJobs} from a Kysely transaction.
 *
 * The job belongs to that transaction. From a `Kysely` that is no transaction, each call has a transaction of its own.
 *
 * Plugins are left out, because they would rename what this package reads.
 *
 * @example
 * await db.transaction().execute(async (trx) => {
 *   await addPolicyJob(fromKysely(trx), fetchEndpoint, { endpointId: "ep1", accountId: "acme" });
 * });
 */
export function fromKysely(db: KyselyLike): Queryable {
  return answersAsPg({
    query: (text, values = []) =>
      db.withoutPlugins().executeQuery({
        sql: text,
        parameters: values,
        query: { kind: "RawNode", sqlFragments: [text], parameters: [] },
        queryId: { queryId: "dispatch_policy" },
      }),
  });
}
