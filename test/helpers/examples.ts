// The examples of a page: blocks of TypeScript whose first line names their file.
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** Where Prisma is installed. */
export const PRISMA = path.join(ROOT, "test/drivers/prisma");

/** Examples by the name of their file, which is their first line. */
export async function examplesOf(page: string): Promise<Map<string, string>> {
  const text = await readFile(path.join(ROOT, page), "utf8");
  const blocks = [...text.matchAll(/```ts\n(\/\/ (\S+\.ts)\n.*?)```/gs)];
  return new Map(blocks.map(([, code, name]) => [name as string, code as string]));
}

/** A folder in which the README's policy and preset, this package and the libraries are found. */
export async function project(t: { teardown(remove: () => Promise<void>): void }): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), "examples-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  await symlink(path.join(ROOT, "node_modules"), path.join(folder, "node_modules"));
  const examples = await examplesOf("README.md");
  await writeFile(path.join(folder, "package.json"), '{ "type": "module" }');
  for (const name of ["policies.ts", "graphile.config.ts"])
    await writeFile(path.join(folder, name), fromSources(examples.get(name)!));
  return folder;
}

/** The package is not built here. */
export function fromSources(code: string): string {
  return code.replaceAll(
    '"graphile-worker-dispatch-policy"',
    JSON.stringify(path.join(ROOT, "src/index.ts")),
  );
}
