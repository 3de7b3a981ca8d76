import { readFileSync } from "node:fs";

const ROOT = new URL("../../", import.meta.url);
const FROM = "<!-- npm run docs writes from here -->";
const TO = "<!-- npm run docs writes until here -->";

/** A table of a page. */
export function rows(head: readonly string[], body: readonly (readonly string[])[]): string {
  const line = (row: readonly string[]) =>
    `| ${row.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), `|${"---|".repeat(head.length)}`, ...body.map(line)].join("\n");
}

/** A page with the table that is written into it. */
export function withTable(name: string, table: string): string {
  const page = readFileSync(new URL(name, ROOT), "utf8");
  const [before, after] = [page.indexOf(FROM), page.indexOf(TO)];
  if (before < 0 || after < before) throw new Error(`${name} has no "${FROM}" with "${TO}" after it`);
  return `${page.slice(0, before + FROM.length)}\n\n${table}\n\n${page.slice(after)}`;
}
