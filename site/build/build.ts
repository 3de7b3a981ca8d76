// The steps that make the site.
import { copyFileSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { docsPages } from "./docs.ts";
import { writeEngine } from "./engine.ts";
import { writeModules } from "./modules.ts";
import { laidOut, type Page } from "./page.ts";
import { playgroundPage } from "./playground.ts";

/** What the page loads, and what it starts as a worker. */
export const ENTRIES = ["site/playground/page.ts", "site/playground/worker.ts"];

/** Builds the site of the repository `root` into the folder `out`, which is made anew. */
export async function buildSite(root: string, out: string): Promise<void> {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(path.join(out, "assets"), { recursive: true });
  copyFileSync(path.join(root, "src/ui/assets/style.css"), path.join(out, "assets/style.css"));
  copyFileSync(path.join(root, "site/assets/site.css"), path.join(out, "assets/site.css"));
  writeModules(root, ENTRIES, path.join(out, "modules"));
  await writeEngine(path.join(out, "engine"));
  const pages: readonly Page[] = [
    playgroundPage(megabytesOf(path.join(out, "engine"))),
    ...docsPages(root, out),
  ];
  for (const page of pages) {
    mkdirSync(path.dirname(path.join(out, page.name)), { recursive: true });
    writeFileSync(path.join(out, page.name), laidOut(page));
  }
}

function megabytesOf(engine: string): number {
  const sizes: Readonly<Record<string, number>> = JSON.parse(
    readFileSync(path.join(engine, "sizes.json"), "utf8"),
  );
  const code = statSync(path.join(engine, "index.js")).size;
  return Math.round((Object.values(sizes).reduce((sum, size) => sum + size, 0) + code) / 1e6);
}
