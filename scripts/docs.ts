// npm run docs: writes docs/options.md from the docstrings of the option types.
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { optionsPage } from "./docs/options.ts";

writeFileSync(fileURLToPath(new URL("../docs/options.md", import.meta.url)), optionsPage());
