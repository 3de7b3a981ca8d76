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

test("each way to build it names an example with its source", async (t) => {
  const ways = (await tablesOf("docs/compare.md")).find(([head]) => head?.[0] === "way");
  t.is(ways?.length, 5);
  for (const row of ways!.slice(1)) t.regex(row.join(" "), /\]\(https:\/\//);
});
