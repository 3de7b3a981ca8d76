import pg from "pg";

/** Whether this package's schema is in the database. */
export async function isInstalled(connectionString: string, schema: string): Promise<boolean> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    const table = `${pg.escapeIdentifier(schema)}._private_migrations`;
    const { rows } = await client.query(
      "select pg_catalog.to_regclass($1::pg_catalog.text) is not null as there",
      [table],
    );
    return rows[0].there;
  } finally {
    await client.end();
  }
}
