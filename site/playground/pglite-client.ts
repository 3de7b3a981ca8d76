// A PGlite as the engine's only connection. `pglitePool` of the testing kit is pg over a stream, which browsers lack.
import type { WithPgClient } from "graphile-worker";

/** A PGlite, as far as it is used here. */
export interface Database {
  query(text: string, values: unknown[]): Promise<{ rows: unknown[] }>;
  exec(text: string): Promise<readonly { rows: unknown[] }[]>;
}

/** Only for callers that await each call: a second transaction would join the first. */
export function withPgClientOf(db: Database): WithPgClient {
  const client = {
    async query(text: string, values?: unknown[]) {
      if (values && values.length > 0) return db.query(text, values);
      return (await db.exec(text)).at(-1) ?? { rows: [] };
    },
  };
  const withPgClient = (callback: (it: never) => Promise<unknown>) => callback(client as never);
  return Object.assign(withPgClient, { withRetries: withPgClient }) as unknown as WithPgClient;
}
