import pg from "pg";
import { looking } from "./looking.ts";
import { internalOf } from "./schemas.ts";

/** Whether this package's schema is in the database. */
export async function isInstalled(connectionString: string, schema: string): Promise<boolean> {
  const table = `${pg.escapeIdentifier(internalOf(schema))}.migrations`;
  const text = "select pg_catalog.to_regclass($1::pg_catalog.text) is not null as there";
  return looking(connectionString, (withPgClient) =>
    withPgClient(async (client) => (await client.query(text, [table])).rows[0].there),
  );
}
