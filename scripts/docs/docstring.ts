// A docstring in its parts, as its author wrote them.
import ts from "ts59";

export interface Docstring {
  /** Paragraphs, lists and tables in Markdown. A paragraph and an item are one line each. */
  readonly blocks: readonly string[];
  /** As the tag @default says it. */
  readonly default: string | undefined;
  readonly deprecated: string | undefined;
  readonly parameters: readonly { readonly name: string; readonly meaning: string }[];
  /** The error is undefined if the tag names none. */
  readonly throws: readonly { readonly error: string | undefined; readonly when: string }[];
  readonly examples: readonly string[];
}

/** The docstring of a declaration or of a member. */
export function docstringOf(node: ts.Node): Docstring {
  const comment = ts.getJSDocCommentsAndTags(node).filter(ts.isJSDoc).at(-1);
  const lines = comment ? linesOf(comment) : [];
  const first = lines.findIndex(isTag);
  const tags = first === -1 ? [] : tagsOf(lines.slice(first));
  const all = (name: string) => tags.filter((one) => one.name === name).map(({ text }) => text);
  const [fallback] = all("default");
  const [deprecated] = all("deprecated");
  return {
    blocks: blocksOf(first === -1 ? lines : lines.slice(0, first)),
    default: fallback && joined(fallback),
    deprecated: deprecated && joined(deprecated),
    parameters: all("param").map((text) => {
      const [, name = "", meaning = ""] = /^(\S+)\s+(.*)$/s.exec(text) ?? [];
      return { name, meaning: joined(meaning) };
    }),
    throws: all("throws").map((text) => {
      const [, error, when = ""] = /^(?:\{(\w+)\}\s*)?(.*)$/s.exec(text) ?? [];
      return { error, when: joined(when) };
    }),
    examples: all("example").map((text) => text.trim()),
  };
}

/** The comment's lines without its stars. */
function linesOf(comment: ts.JSDoc): string[] {
  return comment
    .getText()
    .replace(/^\/\*\*|\s*\*\/$/g, "")
    .split("\n")
    .map((line) => line.replace(/^\s*\*? ?/, "").trimEnd());
}

const isTag = (line: string) => /^@\w+/.test(line);

function tagsOf(lines: readonly string[]): { readonly name: string; readonly text: string }[] {
  const tags: { name: string; text: string }[] = [];
  for (const line of lines) {
    const [, name, text = ""] = /^@(\w+) ?(.*)$/.exec(line) ?? [];
    const last = tags.at(-1);
    if (name !== undefined) tags.push({ name, text });
    else if (last) last.text += `\n${line}`;
  }
  return tags;
}

/** Lines are joined, unless one begins an item or a row. */
function blocksOf(lines: readonly string[]): string[] {
  const text = lines.join("\n").trim();
  if (text === "") return [];
  return text.split(/\n\s*\n/).map((block) => block.replace(/\n(?!\s*(?:\||- |\d+\. ))\s*/g, " "));
}

const joined = (text: string): string => text.replace(/\s+/g, " ").trim();
