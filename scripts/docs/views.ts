// docs/views.md: every view with its columns, their types and what they mean, as the database says it.
import type pg from "pg";

export interface Column {
  readonly view: string;
  readonly about: string;
  readonly column: string;
  readonly type: string;
  readonly meaning: string;
}

/** The columns of all views, by view and place. */
export async function columnsOfViews(pool: pg.Pool): Promise<readonly Column[]> {
  const { rows: found } = await pool.query<Column>(`
    select c.relname as view, obj_description(c.oid, 'pg_class') as about, a.attname as column,
      format_type(a.atttypid, a.atttypmod) as type, col_description(c.oid, a.attnum) as meaning
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relnamespace = 'dispatch_policy'::regnamespace and c.relkind = 'v'
    order by c.relname collate "C", a.attnum`);
  return found;
}

/** The whole page. */
export function viewsPage(columns: readonly Column[]): string {
  const byView = Map.groupBy(columns, ({ view }) => view);
  const views = [...byView].map(([view, its]) => ({ view, about: (its[0] as Column).about, columns: its }));
  return `# Views

This page is generated from the comments in \`sql/views\` by \`npm run docs\`. Do not edit it. In psql, \`\\d+ dispatch_policy.partitions\` says the same of one view.

${views.map(({ view }) => `[\`${view}\`](#${view})`).join(", ")}.

- The views are in the schema \`dispatch_policy\`, or in the one that the preset's \`schema\` names. Their columns are public. The tables behind them, in the schema \`dispatch_policy_internal\`, may change.
- In TypeScript, \`utils.partitions()\`, \`utils.status()\`, \`utils.limits()\`, \`utils.stops()\` and \`utils.history()\` read some of them, with names such as \`inFlight\` for \`in_flight\`.
- A column without a type is a text. \`policy\` is the name of the policy, and \`partition\` the key of the partition.
- \`infinity\` is a time that never comes, \`-infinity\` one that is always over. TypeScript has null for both.
- The [glossary](engine.md#one-word-for-each-thing) explains words such as staged job, in flight, pass and slot.

${views.map(({ view, about, columns: its }) => section(view, about, its)).join("\n\n")}
`;
}

function section(view: string, about: string, columns: readonly Column[]): string {
  const list = columns.map(({ column, type, meaning }) => {
    const named = type === "text" ? `\`${column}\`` : `\`${column}\` (${SHORT[type] ?? type})`;
    return meaning === EVERYWHERE[column] ? `- ${named}` : `- ${named}: ${meaning}`;
  });
  return `## \`${view}\`\n\n${about}\n\n${list.join("\n")}`;
}

/** Said once, at the top. */
const EVERYWHERE: Readonly<Record<string, string>> = {
  policy: "Name of the policy.",
  partition: "Key of the partition.",
};

const SHORT: Readonly<Record<string, string>> = {
  "timestamp with time zone": "timestamptz",
  "double precision": "float8",
};
