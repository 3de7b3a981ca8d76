/**
 * Runs a project of examples/ with the package's sources, on a PostgreSQL that ends with it:
 *
 *   npm run example fair-shares
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const NAME = "graphile-worker-dispatch-policy";
const EXAMPLES = here("../examples/");
const MODULES = here("../node_modules/");
const names = globSync("*/package.json", { cwd: EXAMPLES }).map(path.dirname).sort();

interface Manifest {
  readonly scripts: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
}

const [name = ""] = process.argv.slice(2);
if (names.includes(name)) process.exitCode = await run(name);
else {
  console.error(`There is no example "${name}". Name one of these:\n  ${names.join("\n  ")}`);
  process.exitCode = 2;
}

/** Runs the project's own start command in its folder, after the one that npm runs before it. Resolves to its exit code. */
async function run(name: string): Promise<number> {
  const folder = path.join(EXAMPLES, name);
  const manifest: Manifest = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf8"));
  const missing = missingOf(manifest);
  if (missing.length > 0) {
    console.error(
      `examples/${name} needs ${missing.join(", ")}, which a checkout does not have. Copy the folder out: examples/README.md says how.`,
    );
    return 2;
  }
  const { prestart, start = "" } = manifest.scripts;
  const prepared = prestart ? await runCommand(folder, prestart.split(" ")) : 0;
  if (prepared !== 0) return prepared;
  return await runCommand(folder, [process.execPath, here("postgres.ts"), "--", ...start.split(" ")]);
}

function missingOf({ dependencies }: Manifest): string[] {
  return Object.keys(dependencies).filter((it) => it !== NAME && !existsSync(path.join(MODULES, it)));
}

async function runCommand(folder: string, [program = "", ...args]: string[]): Promise<number> {
  const hook = `--import=${new URL("from-sources.ts", import.meta.url).href}`;
  const child = spawn(program, args, {
    cwd: folder,
    env: {
      ...process.env,
      PATH: `${MODULES}.bin${path.delimiter}${process.env.PATH ?? ""}`,
      NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ""} ${hook}`,
    },
    stdio: "inherit",
  });
  const [code] = await once(child, "exit");
  return code ?? 1;
}
