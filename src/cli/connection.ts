import { parseArgs } from "node:util";
import { ArgumentError } from "../errors.ts";

/** Where a command works, from its options and the environment. */
export interface Connection {
  readonly connectionString: string;
  readonly schema: string | undefined;
  readonly policySchema: string | undefined;
}

/** @throws {ArgumentError} without a connection; node's parseArgs for an unknown option */
export function readConnection(args: string[]): Connection {
  const { values } = parseArgs({
    args,
    options: {
      connection: { type: "string", short: "c" },
      schema: { type: "string" },
      "policy-schema": { type: "string" },
    },
  });
  const connectionString = values.connection ?? process.env.DATABASE_URL;
  if (!connectionString) {
    throw new ArgumentError("no database: give --connection URL or set DATABASE_URL");
  }
  return { connectionString, schema: values.schema, policySchema: values["policy-schema"] };
}
