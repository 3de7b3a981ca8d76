// docs/compare.md: what it says of others has a source, or says that none was found.
import test from "ava";
import { tablesOf } from "../helpers/tables.ts";

test("each cell about another system links its source, or says that it is not documented", async (t) => {
  const [table] = await tablesOf("docs/compare.md");
  const [head, own, ...others] = table!;
  t.is(others.length, 8);
  for (const row of [own!, ...others]) t.is(row.length, head!.length, row[0]);
  const bare = others.flatMap(([system, ...cells]) =>
    cells
      .filter((cell) => !/\]\(https:\/\//.test(cell) && !cell.startsWith("not documented"))
      .map((cell) => `${system}: ${cell}`),
  );
  t.deepEqual(bare, []);
});
