// A project in which the code of a page runs as its reader would run it. test/pages/snippets.test.ts checks its types.
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

export interface Block {
  readonly language: string;
  readonly text: string;
}

/** A page, which is named by its path in the repository, or what stands below one heading of its second level. */
export async function textOfPage(page: string, section?: string): Promise<string> {
  const text = await readFile(path.join(ROOT, page), "utf8");
  if (section === undefined) return text;
  const [, ...sections] = text.split(/^## /m);
  const found = sections.find((one) => one.startsWith(`${section}\n`));
  if (found === undefined) throw new Error(`${page} has no section "${section}"`);
  return found;
}

/** The blocks of code of a page, or of one section of it. */
export async function blocksOf(page: string, section?: string): Promise<Block[]> {
  const text = await textOfPage(page, section);
  return [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language = "", text = ""]) => ({
    language,
    text,
  }));
}

/**
 * Writes the files of blocks, and returns their names. A TypeScript block says in its first line which file it is; several
 * may be parts of one. The only other file is the crontab.
 */
export async function writeFiles(project: string, blocks: readonly Block[]): Promise<string[]> {
  const files = new Map<string, string>();
  for (const { language, text } of blocks) {
    const name =
      language === "ts" ? /^\/\/ (\S+)$/m.exec(text)?.[1] : language === "crontab" ? "crontab" : undefined;
    if (name) files.set(name, (files.get(name) ?? "") + text);
  }
  for (const [name, text] of files) {
    await mkdir(path.dirname(path.join(project, name)), { recursive: true });
    await writeFile(path.join(project, name), text);
  }
  return [...files.keys()];
}

const PACKAGES = ["graphile-worker", "graphile-config", "pg", "zod", "@electric-sql/pglite"];

/**
 * A folder where the packages that pages name resolve, with these more, and this one to its sources. It is removed when the test
 * ends.
 */
export async function readersProject(
  t: { teardown(end: () => Promise<void>): void },
  more: readonly string[] = [],
): Promise<string> {
  const project = await mkdtemp(path.join(os.tmpdir(), "reader-"));
  t.teardown(() => rm(project, { recursive: true, force: true }));
  const modules = path.join(project, "node_modules");
  await mkdir(path.join(modules, "@electric-sql"), { recursive: true });
  await mkdir(path.join(project, "tasks"));
  for (const name of [...PACKAGES, ...more])
    await symlink(path.join(ROOT, "node_modules", name), path.join(modules, name));
  const self = path.join(project, "self");
  await mkdir(self);
  await symlink(self, path.join(modules, "graphile-worker-dispatch-policy"));
  const entry = (name: string) => `export * from ${JSON.stringify(path.join(ROOT, "src", name))};\n`;
  const files = {
    "package.json": '{ "type": "module" }',
    "self/package.json": JSON.stringify({
      name: "graphile-worker-dispatch-policy",
      type: "module",
      exports: { ".": "./index.ts", "./testing": "./testing.ts", "./ui": "./ui.ts" },
    }),
    "self/index.ts": entry("index.ts"),
    "self/testing.ts": entry("testing.ts"),
    "self/ui.ts": entry("ui/ui.ts"),
  };
  for (const [name, text] of Object.entries(files)) await writeFile(path.join(project, name), text);
  return project;
}
