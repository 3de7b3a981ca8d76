/**
 * Runs a project of examples/ with the package's sources, on a PostgreSQL that ends with it:
 *
 *   npm run example fair-shares
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const EXAMPLES = here("../examples/");
const names = globSync("*/package.json", { cwd: EXAMPLES }).map(path.dirname).sort();

const [name = ""] = process.argv.slice(2);
if (names.includes(name)) process.exitCode = await run(path.join(EXAMPLES, name));
else {
  console.error(`There is no example "${name}". Name one of these:\n  ${names.join("\n  ")}`);
  process.exitCode = 2;
}

/** Runs the project's own start command in its folder, and resolves to its exit code. */
async function run(folder: string): Promise<number> {
  const { scripts } = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf8"));
  const start: string[] = scripts.start.split(" ");
  const hook = `--import=${new URL("from-sources.ts", import.meta.url).href}`;
  const child = spawn(process.execPath, [here("postgres.ts"), "--", ...start], {
    cwd: folder,
    env: { ...process.env, NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ""} ${hook}` },
    stdio: "inherit",
  });
  const [code] = await once(child, "exit");
  return code ?? 1;
}
