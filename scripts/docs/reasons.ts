// The reasons why jobs wait, as SQL lists them.
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";
import { CAP_KINDS } from "../../src/gates/index.ts";
import { rows, withTable } from "./table.ts";

const LIST = /\('(%?\w+)', '(\w+)', '(\w+)',\s+'((?:[^']|'')+)'\)/g;

/** The rows of `_known_reasons`. The reason of a cap is that of each kind. */
export function listedReasons() {
  const its = sqlFiles("functions")
    .flatMap(describedIn)
    .find(({ name }) => name === "_known_reasons");
  return [...(its?.text ?? "").matchAll(LIST)].flatMap(([, name = "", kind = "", acts = "", sentence = ""]) =>
    (name === "%_full" ? CAP_KINDS.map((cap) => `${cap}_full`) : [name]).map((reason) => ({
      ...{ reason, kind, acts, sentence },
    })),
  );
}

/** docs/operating.md with the table of who has to act as the SQL has it now. */
export function operatingPage(): string {
  const byActs = Map.groupBy(listedReasons(), ({ acts }) => acts);
  const linked = ({ reason }: { reason: string }) => `[\`${reason}\`](#${reason})`;
  return withTable(
    "docs/operating.md",
    rows(
      ["who acts (`acts`)", "reasons"],
      [...byActs].map(([acts, its]) => [acts, its.map(linked).join(", ")]),
    ),
  );
}
