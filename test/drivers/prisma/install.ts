// Installs Prisma in this folder (300 MB), and generates its client.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL(".", import.meta.url));

function run(command: string, args: string[], env: NodeJS.ProcessEnv = {}): void {
  const { status } = spawnSync(command, args, {
    cwd: FOLDER,
    stdio: ["ignore", 2, 2],
    env: { ...process.env, ...env },
  });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} in ${FOLDER} failed`);
}

run("npm", [
  "install",
  "--no-package-lock",
  "--ignore-scripts",
  "--no-audit",
  "--no-fund",
  "--loglevel=error",
]);
// To generate a client needs no schema engine, but Prisma downloads one unless a file is named. Any file does.
run("npx", ["--no", "prisma", "generate"], { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath });
