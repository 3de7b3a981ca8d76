// A page of docs/, whose snippets a test runs: commands with what they print, SQL with its rows, and lines of TypeScript.
import { mkdtemp, readFile, realpath, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
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
  /** Where its text begins in the page. */
  readonly at: number;
  /** The place of a TypeScript block among those of the page. */
  readonly nth: number;
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

type Snippet = (utils: PolicyUtils) => Promise<unknown>;

/** A page: its sections, and what runs the snippets of one. */
export async function openPage(name: string) {
  const file = path.join(ROOT, name);
  const text = await readFile(file, "utf8");
  const sections = sectionsOf(text);
  const blocks = sections.flatMap((section) => section.blocks);
  const known = blocks.every(({ language }) => ["console", "sql", "text", "ts"].includes(language));
  if (!known) throw new Error(`${name}: a block is none of console, sql, text and ts`);
  const code = blocks.filter(({ language }) => language === "ts").map((block) => block.text);
  const edits: Edit[] = [];
  return {
    text,
    sections,
    /** The snippets of TypeScript as functions. test/pages/snippets.test.ts checks their types. */
    load: () => loaded(code),
    async run(
      t: ExecutionContext,
      { title, blocks: its }: Section,
      place: Place,
      snippets: readonly Snippet[],
    ) {
      for (const [n, block] of its.entries()) {
        const answer = its[n + 1]?.language === "text" ? its[n + 1] : undefined;
        if (block.language === "ts") await t.notThrowsAsync(snippets[block.nth]!(place.utils), block.text);
        if (block.language === "console") await commands(t, title, block, place, edits);
        if (block.language === "sql") await statements(t, title, block, answer, place, edits);
      }
    },
    /** With PAGES=write the page gets what the snippets print now. */
    async write(): Promise<void> {
      if (process.env.PAGES !== "write") return;
      const fromTheEnd = edits.toSorted((one, other) => other.block.at - one.block.at);
      const now = fromTheEnd.reduce(
        (page, { block: { at, text: old }, to }) => page.slice(0, at) + to + page.slice(at + old.length),
        text,
      );
      await writeFile(file, now);
    },
  };
}

function sectionsOf(text: string): readonly Section[] {
  const heads = [...text.matchAll(/^## (.*)$/gm)];
  const blocks = [...text.matchAll(/^```(\w*)\n(.*?)^```$/gms)];
  let nth = 0;
  return heads.map(({ index, 1: title = "" }, n) => ({
    title: title.replaceAll("`", ""),
    blocks: blocks
      .filter((block) => block.index > index && block.index < (heads[n + 1]?.index ?? text.length))
      .map(({ index: start, 1: language = "", 2: inside = "" }) => ({
        ...{ language, text: inside, at: start + `\`\`\`${language}\n`.length },
        nth: language === "ts" ? nth++ : -1,
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

/** All snippets of a page as functions of one file. */
async function loaded(code: readonly string[]): Promise<readonly Snippet[]> {
  const folder = await realpath(await mkdtemp(path.join(os.tmpdir(), "page-")));
  try {
    const index = JSON.stringify(path.relative(folder, path.join(ROOT, "src/index.ts")));
    const body = code.map((text) => `async (utils: PolicyUtils) => {\n${text}},\n`).join("");
    const file = path.join(folder, "snippets.ts");
    await writeFile(
      file,
      `import type { PolicyUtils } from ${index};\nexport const snippets = [\n${body}];\n`,
    );
    await writeFile(path.join(folder, "package.json"), '{ "type": "module" }');
    await symlink(path.join(ROOT, "node_modules"), path.join(folder, "node_modules"));
    const { snippets } = (await import(pathToFileURL(file).href)) as { snippets: readonly Snippet[] };
    return snippets;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
