import { answersAsPg } from "../db/answers.ts";
import type { Queryable } from "../index.ts";

/** What a `PrismaClient` has, and the client of an interactive transaction. */
export interface PrismaLike {
  $queryRawUnsafe(text: string, ...values: unknown[]): PromiseLike<unknown>;
}

/**
 * A client for {@link addPolicyJob} and {@link addPolicyJobs} from an interactive transaction of Prisma.
 *
 * The job belongs to that transaction. From a `PrismaClient` itself, each call has a transaction of its own.
 *
 * @example
 * await prisma.$transaction(async (tx) => {
 *   await addPolicyJob(fromPrisma(tx), fetchEndpoint, { endpointId: "ep1", accountId: "acme" });
 * });
 */
export function fromPrisma(prisma: PrismaLike): Queryable {
  return answersAsPg({
    async query(text, values = []) {
      try {
        return { rows: (await prisma.$queryRawUnsafe(text, ...values)) as Record<string, unknown>[] };
      } catch (error) {
        throw databaseErrorOf(error);
      }
    },
  });
}

/** Prisma's `meta` of an error that a raw query got from the database: of driver adapters, and of the engine before. */
interface Meta {
  readonly driverAdapterError?: { cause?: { originalCode?: string; originalMessage?: string } };
  readonly code?: string;
  readonly message?: string;
}

const RAW_QUERY_FAILED = "P2010";

/** Prisma puts a code of its own where other drivers have PostgreSQL's. */
function databaseErrorOf(error: unknown): unknown {
  const { code, meta = {} } = (error ?? {}) as { code?: unknown; meta?: Meta };
  if (code !== RAW_QUERY_FAILED) return error;
  const { originalCode = meta.code, originalMessage = meta.message?.replace(/^ERROR: /, "") } =
    meta.driverAdapterError?.cause ?? {};
  return Object.assign(new Error(originalMessage, { cause: error }), { code: originalCode });
}
