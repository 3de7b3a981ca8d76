import { indexes } from "../../db/indexes.ts";
import { internalOf } from "../../db/schemas.ts";
import { COMMAND, literal, name } from "../quoted.ts";
import { type Check, type Finding, where } from "./finding.ts";

/** The schema is not there, or of another release than this package. */
const schemaVersion: Check = async ({ state, schema }): Promise<readonly Finding[]> => {
  const { found, expected, routines } = state;
  if (found === null)
    return [
      {
        id: "schema-missing",
        severity: "critical",
        sentence: `The database has no schema "${schema}".`,
        mend: `${COMMAND} migrate`,
      },
    ];
  const isOlder = found < expected || (found === expected && routines === "older");
  if (!isOlder && found === expected && routines === "same") return [];
  const what =
    found === expected
      ? `The functions of schema "${schema}" are of ${isOlder ? "an older" : "a newer"} release than this package.`
      : `Schema "${schema}" has migration ${found}, and this package expects ${expected}.`;
  const severity = found === expected ? "warning" : "critical";
  if (isOlder) return [{ id: "schema-older", severity, sentence: what, mend: `${COMMAND} migrate` }];
  return [
    {
      id: "schema-newer",
      severity,
      sentence: what,
      mend: "npm install graphile-worker-dispatch-policy@latest",
    },
  ];
};

/** Indexes that a pass needs. Without one it still works, but ever more slowly. */
const indexBroken: Check = async ({ ask, schema, state }) => {
  const expected = indexes({ own: schema, worker: state.workerSchema });
  const rows = await ask<{ name: string; there: boolean }>(
    `select coalesce(e.name, c.relname) as name, c.oid is not null as there
     from unnest($1::text[]) e (name)
     full join (
       select k.oid, k.relname, x.indisvalid from pg_class k join pg_index x on x.indexrelid = k.oid
       where k.relnamespace = $2::text::regnamespace
     ) c on c.relname = e.name
     where c.oid is null or not c.indisvalid
     order by 1`,
    [[...expected.keys()], name(internalOf(schema))],
  );
  return rows.map(({ name: index, there }) => ({
    id: "index-broken",
    severity: "warning",
    sentence: `Index "${index}" of schema "${internalOf(schema)}" is ${there ? "invalid" : "missing"}, so ticks get slower.`,
    mend: there
      ? `reindex index concurrently ${name(internalOf(schema))}.${name(index)};`
      : `${expected.get(index)?.replace(" index ", " index concurrently ")};`,
  }));
};

/** Rights that PUBLIC must not have: see docs/production.md#security. */
const publicGrant: Check = async ({ ask, schema }) => {
  const rows = await ask<{ what: string }>(
    `select 'schema ' || n.oid::regnamespace as what from pg_namespace n
       where n.oid = any($1::text[]::regnamespace[]) and exists (select from aclexplode(n.nspacl) a where a.grantee = 0)
     union all
     select 'routine ' || p.oid::regprocedure from pg_proc p
       where p.pronamespace = any($1::text[]::regnamespace[]) and p.prosecdef
         and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0)
     union all
     select 'table ' || c.oid::regclass from pg_class c
       where c.relnamespace = any($1::text[]::regnamespace[]) and c.relkind in ('r', 'v')
         and exists (select from aclexplode(c.relacl) a where a.grantee = 0)
     order by 1`,
    [[name(schema), name(internalOf(schema))]],
  );
  return where(rows.length > 0, () => ({
    id: "public-grant",
    severity: "warning",
    sentence: `Every role has rights on ${rows.length} objects of schema ${literal(schema)}, the first is ${rows[0]?.what}.`,
    mend: rows.map(({ what }) => `revoke all on ${what} from public;`).join("\n"),
  }));
};

export const schemaChecks: readonly Check[] = [indexBroken, publicGrant];
/** The one that needs no schema. */
export const versionChecks: readonly Check[] = [schemaVersion];
