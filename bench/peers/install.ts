import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL(".", import.meta.url));

export const areInstalled = (): boolean => existsSync(`${FOLDER}node_modules/bullmq`);

/** The other job queues are dependencies of their own folder, and come when they are asked for. */
export function installPeers(): void {
  if (areInstalled()) return;
  const args = ["install", "--no-package-lock", "--no-audit", "--no-fund", "--omit=optional"];
  const { status } = spawnSync("npm", args, { cwd: FOLDER, stdio: ["ignore", 2, 2] });
  if (status !== 0) throw new Error(`npm install in ${FOLDER} failed`);
}
