// Programs of the machine that tests run beside the database.
import { accessSync, constants } from "node:fs";
import path from "node:path";

/** The first on PATH, else in one of the folders; undefined: not installed. */
export function findProgram(name: string, folders: readonly string[] = []): string | undefined {
  return [...(process.env.PATH ?? "").split(path.delimiter), ...folders]
    .map((folder) => path.join(folder, name))
    .find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
