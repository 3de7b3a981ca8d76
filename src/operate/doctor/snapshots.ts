import { some } from "../../counted.ts";
import type { OldSnapshot } from "../../db/engine.ts";
import { interval } from "../../db/statements.ts";
import { literal } from "../quoted.ts";
import { ago, type Check } from "./finding.ts";

/** Vacuum removes no row that somebody may still see, so hot tables grow, and passes read past dead rows. */
const oldSnapshot: Check = async ({ ask, thresholds }) => {
  const rows = await ask<OldSnapshot>(
    `select * from :DISPATCH_POLICY_INTERNAL._old_snapshots(
       pg_catalog.clock_timestamp(), $1::text::interval, $2::float8::bigint)`,
    [interval(thresholds.oldSnapshotMs), thresholds.oldSnapshotTransactions],
  );
  return rows.map((row) => ({
    id: "old-snapshot",
    severity: "warning",
    sentence: `${causeOf(row)}, and passes get slower.`,
    mend: mendOf(row),
  }));
};

/** Who keeps dead rows, for how long, and how many. Without a full stop. */
export function causeOf(row: OldSnapshot): string {
  const kept = some(row.transactions, "transaction");
  return `${said(row)}. So PostgreSQL keeps all rows that died in the last ${kept}`;
}

function said(row: OldSnapshot): string {
  switch (row.kind) {
    case "session": {
      const more = [row.application, row.state].filter(Boolean).join(", ");
      const who = `Session ${row.pid} of ${row.role}${more && ` (${more})`}${inDatabase(row)}`;
      return row.seconds === null
        ? `${who} has a transaction open, and this role may not see since when`
        : `${who} has had a transaction open for ${ago(row.seconds)}`;
    }
    case "prepared":
      return `Prepared transaction ${literal(row.name)} of ${row.role}${inDatabase(row)} has waited for its commit for ${ago(row.seconds ?? 0)}`;
    case "standby":
      return `A query on standby ${literal(row.application)} (session ${row.pid}) still reads old rows`;
    case "slot":
      return row.pid === null
        ? `Replication slot ${literal(row.name)} has an old xmin, and nobody reads the slot`
        : `A query on the standby of replication slot ${literal(row.name)} still reads old rows`;
  }
}

/** Each begins with a look, because a backup may be left to end. */
function mendOf(row: OldSnapshot): string {
  switch (row.kind) {
    case "session":
      return `-- look first at what it does: a backup may be left to end
select usename, application_name, state, xact_start, query from pg_stat_activity where pid = ${row.pid};${
        row.seconds === null ? " -- as a role with pg_read_all_stats" : ""
      }
select pg_terminate_backend(${row.pid});`;
    case "prepared":
      return `-- look first at who prepared it: that program may still want to commit it
select * from pg_prepared_xacts where gid = ${literal(row.name)};
rollback prepared ${literal(row.name)}; -- in its own database`;
    case "slot":
      if (row.pid !== null) return ON_STANDBY;
      return `-- look first at whose it is: its standby cannot go on without it
select * from pg_replication_slots where slot_name = ${literal(row.name)};
select pg_drop_replication_slot(${literal(row.name)});`;
    case "standby":
      return ON_STANDBY;
  }
}

const inDatabase = ({ database }: { database: string | null }) =>
  database === null ? "" : ` in database "${database}"`;

/** A standby that is cut off connects again, with the same xmin. */
const ON_STANDBY = `-- on that standby; or switch its hot_standby_feedback off
select pid, usename, application_name, xact_start, query from pg_stat_activity
where backend_xmin is not null order by age(backend_xmin) desc limit 5;
select pg_terminate_backend(pid);`;

export const snapshotChecks: readonly Check[] = [oldSnapshot];
