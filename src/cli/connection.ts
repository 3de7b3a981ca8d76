import { ArgumentError } from "../errors.ts";

/** Where a command works, from its options and the environment. */
export interface Connection {
  readonly connectionString: string;
  readonly schema: string | undefined;
  readonly policySchema: string | undefined;
}

/** The options of every command, for node's parseArgs. */
export const CONNECTION_OPTIONS = {
  connection: { type: "string", short: "c" },
  schema: { type: "string" },
  "policy-schema": { type: "string" },
} as const;

/** @throws {ArgumentError} without a connection */
export function connectionOf(values: { [name in keyof typeof CONNECTION_OPTIONS]?: string }): Connection {
  const connectionString = values.connection ?? process.env.DATABASE_URL;
  if (!connectionString) {
    throw new ArgumentError("no database: give --connection URL or set DATABASE_URL");
  }
  return { connectionString, schema: values.schema, policySchema: values["policy-schema"] };
}
