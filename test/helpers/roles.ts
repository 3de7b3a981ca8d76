// Roles of a test's own: they belong to the whole server, so their names are made unique.
import { randomBytes } from "node:crypto";
import type { ExecutionContext } from "ava";
import pg from "pg";
import type { TestDatabase } from "./database.ts";
import { blocksOf } from "./readers-project.ts";

/** What docs/production.md says on security, with its names replaced by ones of the test's own. */
export async function documentedStatements(
  rename: (name: string) => string,
  database: string,
): Promise<string[]> {
  const blocks = await blocksOf("docs/production.md", "Security");
  const statements = blocks.filter(({ language }) => language === "sql");
  return statements.map(({ text }) =>
    text
      .replace(/\bapp_\w+/g, rename)
      .replace("on database app to", `on database ${pg.escapeIdentifier(database)} to`),
  );
}

export interface Roles {
  /** The name on this server of a role that is called so in the test. */
  nameOf(role: string): string;
  /** A connection of that role, which must be allowed to log in. */
  as(role: string): Promise<pg.Client>;
}

/** Drops what these roles own and the roles themselves when the test ends, before its database goes. */
export function roles(
  t: ExecutionContext,
  { url, pool }: Pick<TestDatabase, "url" | "pool">,
  names: readonly string[],
): Roles {
  const suffix = randomBytes(4).toString("hex");
  const nameOf = (role: string) => `${role}_${suffix}`;
  t.teardown(async () => {
    for (const role of names.map(nameOf)) {
      const { rows } = await pool.query("select from pg_roles where rolname = $1", [role]);
      if (rows.length > 0) await pool.query(`drop owned by ${role} cascade; drop role ${role}`);
    }
  });
  return {
    nameOf,
    async as(role) {
      const at = new URL(url);
      at.username = nameOf(role);
      const client = new pg.Client({ connectionString: at.href });
      client.on("error", () => {});
      await client.connect();
      t.teardown(() => client.end());
      return client;
    },
  };
}
