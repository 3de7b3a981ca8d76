import { connected, looking } from "../../db/looking.ts";
import { makeContext, type OperateContext } from "../../operate/call.ts";
import { type DispatchPolicyOptions, schemaOf } from "../../settings.ts";
import { type PlaceValues, UsageError } from "../command.ts";

/** Where a command works. */
export interface Place {
  readonly connectionString: string;
  /** Graphile Worker's schema; undefined: the default. */
  readonly schema: string | undefined;
  readonly policySchema: string;
  /** This package's options in the configuration; undefined: it was not read, or has none. */
  readonly options: DispatchPolicyOptions | undefined;
}

/**
 * A flag goes before the environment, and that before the configuration. The configuration is code of the application. So
 * it is read only if its name is given, if nothing else names a connection, or if the command is about it (`isAsked`).
 *
 * @throws {UsageError} without a connection
 */
export async function placeOf(values: PlaceValues, isAsked = false): Promise<Place> {
  const known = values.connection ?? (process.env.DATABASE_URL || undefined);
  const config =
    isAsked || values.config !== undefined || known === undefined
      ? await (await import("./config.ts")).readConfig(values.config)
      : undefined;
  const connectionString = known ?? config?.connectionString;
  if (connectionString === undefined)
    throw new UsageError(
      "no database: give --connection URL, set DATABASE_URL, or name worker.connectionString in graphile.config",
    );
  return {
    connectionString,
    schema: values.schema ?? process.env.GRAPHILE_WORKER_SCHEMA ?? config?.schema,
    policySchema: schemaOf(
      values["policy-schema"] ?? process.env.DISPATCH_POLICY_SCHEMA ?? config?.options?.schema,
    ),
    options: config?.options,
  };
}

type Use<T> = (context: OperateContext) => Promise<T>;

/** Runs verbs that change something, on a connection of their own. It sets nothing up. */
export async function changing<T>(values: PlaceValues, use: Use<T>): Promise<T> {
  return inPlace(await placeOf(values), connected, use);
}

/** Runs what only looks, on a connection that cannot write. */
export async function lookingAt<T>(values: PlaceValues, use: Use<T>): Promise<T> {
  return inPlace(await placeOf(values), looking, use);
}

export function inPlace<T>(
  { connectionString, policySchema, options }: Place,
  connect: typeof connected,
  use: Use<T>,
): Promise<T> {
  return connect(connectionString, (withPgClient) =>
    use(makeContext(policySchema, withPgClient, options?.policies)),
  );
}
