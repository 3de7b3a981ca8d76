import { parameter } from "./parameters.ts";
import type { Queryable, Statements } from "./statements.ts";

/** What this package asks of the PostgreSQL server itself. */
export function server({ internal, rowsAsIs }: Statements) {
  return {
    /** How far the clock here is behind the database's, and how wrong that may be, both in milliseconds. */
    clockBehindMs: async (client: Queryable) => {
      const asked = Date.now();
      // a select without "from" returns one row always
      const [{ seconds }] = (await rowsAsIs(
        client,
        "select extract(epoch from pg_catalog.clock_timestamp())::float8 as seconds",
      )) as [{ seconds: number }];
      const answered = Date.now();
      return {
        behindMs: Math.round(seconds * 1000 - (asked + answered) / 2),
        errorMs: Math.ceil((answered - asked) / 2),
      };
    },

    /** The process id of the backend that answers. */
    backendPid: async (client: Queryable) => {
      const [{ pid }] = (await rowsAsIs(client, "select pg_catalog.pg_backend_pid() as pid")) as [
        { pid: number },
      ];
      return pid;
    },

    /** Cancels the statement that a backend runs for this package, and no other statement. */
    cancel: (client: Queryable, pid: number) =>
      rowsAsIs(
        client,
        `select pg_catalog.pg_cancel_backend(pid) from pg_catalog.pg_stat_activity
         where pid = ${parameter(1, "int")} and state = 'active' and usename = current_user and datname = pg_catalog.current_database()
           and pg_catalog.strpos(query, ${parameter(2, "text")}) > 0`,
        [pid, `${internal}._`],
      ),
  };
}
