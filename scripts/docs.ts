// npm run docs: writes docs/api.md and docs/options.md from the docstrings, docs/views.md from the comments of the views in a
// database of its own, and from the SQL the rooms of docs/engine.md and the reasons of docs/operating.md.
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { testDatabase } from "../test/helpers/database.ts";
import { apiPage } from "./docs/api.ts";
import { optionsPage } from "./docs/options.ts";
import { operatingPage } from "./docs/reasons.ts";
import { enginePage } from "./docs/rooms.ts";
import { columnsOfViews, viewsPage } from "./docs/views.ts";

const { pool, drop } = await testDatabase();
const views = await columnsOfViews(pool).finally(drop);
for (const [page, text] of [
  ["api", apiPage()],
  ["engine", enginePage()],
  ["operating", operatingPage()],
  ["options", optionsPage()],
  ["views", viewsPage(views)],
] as const)
  writeFileSync(fileURLToPath(new URL(`../docs/${page}.md`, import.meta.url)), text);
