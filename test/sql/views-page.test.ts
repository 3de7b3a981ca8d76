// docs/views.md: it is what the comments in sql/views give.
import { readFileSync } from "node:fs";
import test from "ava";
import { columnsOfViews, viewsPage } from "../../scripts/docs/views.ts";
import { sqlFiles } from "../../src/db/sql-files.ts";
import { testDatabase } from "../helpers/database.ts";

test("the page is what npm run docs writes, and has every view", async (t) => {
  const { pool } = await testDatabase(t);
  const columns = await columnsOfViews(pool);
  const page = readFileSync(new URL("../../docs/views.md", import.meta.url), "utf8");
  t.is(page, viewsPage(columns), "run: npm run docs");
  const files = sqlFiles("views").map(({ name }) => name.replace(".sql", ""));
  t.deepEqual([...page.matchAll(/^## `(\w+)`$/gm)].map(([, view]) => view).toSorted(), files.toSorted());
});
