// The files of this package that are no modules: its SQL, and what browsers load.
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const NAME = "graphile-worker-dispatch-policy";

/** That of package.json. A bundle carries it with the code, and must not run the SQL of another version. */
export const VERSION = "0.1.0";

let folder: string | undefined;

/** A file or folder of the package, by its path in it. */
export function ownFile(name: string): string {
  folder ??= packageFolder();
  return path.join(folder, name);
}

/**
 * The folder of package.json. This module lies below it. A bundle does not, and bundlers leave it no URL, or that of the machine
 * which built it. So the package is looked for in the same way as Node looks for an import of it: from here, and from the
 * program that was started. Another package may have a folder sql/migrations as well, and so may an application.
 *
 * @throws {Error} if it is not there, or in another version
 */
function packageFolder(): string {
  const starts = startingPoints();
  for (const start of starts) {
    for (let at = path.dirname(start); ; at = path.dirname(at)) {
      const found = [at, path.join(at, "node_modules", NAME)].find(isOwn);
      if (found) return found;
      if (at === path.dirname(at)) break;
    }
  }
  throw new Error(
    `The files of ${NAME} ${VERSION} are missing, expected them in node_modules at or above ${starts.join(" or ")}: reinstall ` +
      "it; beside a bundle, install this version or leave the package out of the bundle (docs/production.md#bundles)",
  );
}

function startingPoints(): readonly string[] {
  const { url } = import.meta as { url?: string };
  const script = process.argv[1];
  return [...(url ? [fileURLToPath(url)] : []), ...(script ? [path.resolve(script)] : [])];
}

function isOwn(candidate: string): boolean {
  const file = path.join(candidate, "package.json");
  if (!existsSync(file)) return false;
  const { name, version } = JSON.parse(readFileSync(file, "utf8"));
  return name === NAME && version === VERSION;
}
