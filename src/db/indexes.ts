import type { Schemas } from "./schemas.ts";
import { sqlFiles, withSchemas } from "./sql-files.ts";

const CREATED = /^create (?:unique )?index (\w+) on [^;]*/gm;
const DROPPED = /^drop index (?:if exists )?(\w+)/gm;

/** The indexes that the migrations create, each with its statement. Those of keys are not among them. */
export function indexes(schemas: Schemas): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { text } of sqlFiles("migrations")) {
    for (const [, dropped = ""] of text.matchAll(DROPPED)) found.delete(dropped);
    for (const [statement, created = ""] of text.matchAll(CREATED))
      found.set(created, withSchemas(statement.replace(" on ", " on :DISPATCH_POLICY_INTERNAL."), schemas));
  }
  return found;
}
