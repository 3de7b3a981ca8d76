// A chapter of a page of docs/, whose snippets a test runs: commands with what they print, and SQL with its rows.
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { ExecutionContext } from "ava";
import type pg from "pg";
import type { PolicyUtils } from "../../src/index.ts";
import { runIn } from "./command.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const COMMAND = "npx graphile-worker-dispatch-policy ";

export interface Section {
  /** The heading, without its marks. */
  readonly title: string;
  readonly blocks: readonly Block[];
}

interface Block {
  readonly language: string;
  readonly text: string;
}

/** Where the snippets of a section run. */
export interface Place {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly utils: PolicyUtils;
}

/** What a block prints now. */
interface Edit {
  readonly block: Block;
  readonly to: string;
}

/** A chapter (`## `) of a page: its sections (`### `), and what runs the snippets of one. */
export function openChapter(name: string, chapter: string) {
  const file = path.join(ROOT, name);
  const sections = sectionsOf(textOfChapter(readFileSync(file, "utf8"), chapter));
  const blocks = sections.flatMap((section) => section.blocks);
  const known = blocks.every(({ language }) => ["console", "sql", "text"].includes(language));
  if (!known) throw new Error(`${name}, ${chapter}: a block is none of console, sql and text`);
  const edits: Edit[] = [];
  return {
    sections,
    async run(t: ExecutionContext, { title, blocks: its }: Section, place: Place) {
      for (const [n, block] of its.entries()) {
        const answer = its[n + 1]?.language === "text" ? its[n + 1] : undefined;
        if (block.language === "console") await commands(t, title, block, place, edits);
        if (block.language === "sql") await statements(t, title, block, answer, place, edits);
      }
    },
    /** With PAGES=write the page gets what the snippets print now. Other chapters may have changed meanwhile. */
    write(): void {
      if (process.env.PAGES !== "write") return;
      const now = edits.reduce(
        (text, { block, to }) =>
          text.replace(fenced(block.language, block.text), () => fenced(block.language, to)),
        readFileSync(file, "utf8"),
      );
      writeFileSync(file, now);
    },
  };
}

const fenced = (language: string, text: string) => `\`\`\`${language}\n${text}\`\`\`\n`;

/** The text of a page from the heading of a chapter to the next one. */
export function textOfChapter(page: string, chapter: string): string {
  const [, text] = page.split(`\n## ${chapter}\n`);
  if (text === undefined) throw new Error(`no chapter "${chapter}"`);
  return text.split(/^## /m, 1)[0] ?? "";
}

function sectionsOf(chapter: string): readonly Section[] {
  const [, ...parts] = chapter.split(/^### /m);
  return parts.map((part) => ({
    title: part.split("\n", 1)[0]!.replaceAll("`", ""),
    blocks: [...part.matchAll(/^```(\w*)\n(.*?)^```$/gms)].map(([, language = "", text = ""]) => ({
      language,
      text,
    })),
  }));
}

/** Runs each command of a block. Under it stands what it prints. */
async function commands(
  t: ExecutionContext,
  title: string,
  block: Block,
  { url }: Place,
  edits: Edit[],
): Promise<void> {
  let now = "";
  for (const part of block.text.split(/^\$ /m).slice(1)) {
    const [line = "", ...printed] = part.split("\n");
    t.true(line.startsWith(COMMAND), `${title}: ${line}`);
    const args = line.slice(COMMAND.length).match(/"[^"]*"|\S+/g) ?? [];
    const env = { DATABASE_URL: url, TZ: "UTC" };
    const { stdout, stderr } = await runIn({ env }, ...args.map((arg) => arg.replaceAll('"', "")));
    const asNow = printed.join("\n").trim();
    const isSame = masked(asNow) === masked(stdout + stderr);
    now += `${now && "\n"}$ ${line}\n${isSame ? `${asNow}\n` : stdout + stderr}`;
    if (process.env.PAGES !== "write")
      t.is(masked(asNow), masked(stdout + stderr), `${title}: ${line}\nprints now:\n${stdout}${stderr}`);
  }
  if (now !== block.text) edits.push({ block, to: now });
}

/** Runs the statements of a block. A block of text behind it has the rows of the last one, as psql shows them. */
async function statements(
  t: ExecutionContext,
  title: string,
  { text }: Block,
  answer: Block | undefined,
  { pool }: Place,
  edits: Edit[],
): Promise<void> {
  let rows: readonly Record<string, unknown>[] = [];
  for (const statement of text.split(/;(?:\s*--.*)?$/m).filter((one) => one.trim() !== "")) {
    const result = await pool.query({ text: statement, types: { getTypeParser: () => String } });
    rows = result.rows;
    t.true(rows.length > 0, `${title}: no row of ${statement}`);
  }
  if (!answer) return;
  const now = asInPsql(rows);
  if (process.env.PAGES !== "write")
    t.is(masked(answer.text), masked(now), `${title}: ${text}\nnow:\n${now}`);
  else if (masked(answer.text) !== masked(now)) edits.push({ block: answer, to: now });
}

function asInPsql(rows: readonly Record<string, unknown>[]): string {
  const names = Object.keys(rows[0] ?? {});
  const cells = rows.map((row) => names.map((name) => String(row[name] ?? "")));
  const widths = names.map((name, n) => Math.max(name.length, ...cells.map((row) => row[n]!.length)));
  const line = (row: readonly string[]) =>
    ` ${row.map((cell, n) => cell.padEnd(widths[n]!)).join(" | ")}`.trimEnd();
  const rule = widths.map((width) => "-".repeat(width + 2)).join("+");
  return `${[line(names), rule, ...cells.map(line)].join("\n")}\n`;
}

/** What differs between two runs: times, parts of a token, ids of workers and jobs, the measured pace, where lines break and are cut. */
function masked(text: string): string {
  return text
    .replace(/^ *\d+ +(?=(admitted|running|parked|failed) {2})/gm, "<id> ")
    .replace(/\s+/g, " ")
    .replace(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?([+-]\d\d(:?\d\d)?|Z)?/g, "<time>")
    .replace(/\b\d\d-\d\d \d\d:\d\d:\d\d\b/g, "<time>")
    .replace(/\bstart in [\d.,]+(-[\d.,]+| \w+ to [\d.,]+)? (ms|s|min|h|days)\b/g, "start in <interval>")
    .replace(/\b\d[\d.,]* (ms|s|min|h|days)\b/g, "<duration>")
    .replace(/\b0(\.\d+)? of ([\d.,]+) (tokens|are left)/g, "no token of $2")
    .replace(/\bsome [\d,]+ jobs? lately/g, "some <jobs> lately")
    .replace(/\b[1-9]\d*(\.\d+)? of ([\d.,]+) tokens/g, "tokens of $2")
    .replace(/\bjob \d+/g, "job <id>")
    .replace(/\bpool-[0-9a-f]+/g, "<pool>")
    .replace(/\bprocess \d+ on [\w.-]+/g, "<process>")
    .replace(/\bahead: [\d,]+ of [\d,]+ slots/g, "ahead: <slots>")
    .replace(/(?:, \w+)*,? ?\w*…/g, "…")
    .replace(/-{3,}(\+-+)*/g, "<rule>")
    .trim();
}
