// The texts of TypeScript sources: paragraphs of comments, and messages.
import ts from "ts59";

/** A paragraph, and the line in which it begins. */
export interface Paragraph {
  readonly line: number;
  readonly text: string;
}

/** Joins lines to paragraphs. */
function gatherer() {
  const found: Paragraph[] = [];
  let lines: string[] = [];
  let first = 0;
  const end = () => {
    if (lines.length > 0) found.push({ line: first, text: lines.join(" ") });
    lines = [];
  };
  return {
    found,
    end,
    add(line: number, text: string): void {
      if (lines.length === 0) first = line;
      lines.push(text.trim());
    },
  };
}

const ITEM = /^\s*(?:[-*]|\d+\.)\s+/;

/** Of TypeScript: comments without their examples, and texts of one line, such as messages. */
export function proseOfTypeScript(source: string): readonly Paragraph[] {
  const file = ts.createSourceFile("it.ts", source, ts.ScriptTarget.Latest, true);
  const comments = new Map<number, string>();
  const texts: Paragraph[] = [];
  const visit = (node: ts.Node): void => {
    for (const { pos, end } of [
      ...(ts.getLeadingCommentRanges(source, node.getFullStart()) ?? []),
      ...(ts.getTrailingCommentRanges(source, node.getEnd()) ?? []),
    ])
      comments.set(pos, source.slice(pos, end));
    const text = textOf(node);
    if (text === undefined) {
      for (const child of node.getChildren(file)) visit(child);
    } else if (!text.includes("\n")) texts.push({ line: lineAt(source, node.getStart()), text });
  };
  visit(file);
  return [...proseOfComments(source, comments), ...texts];
}

/** A literal, or a sum of literals, with "x" for the values in it. */
function textOf(node: ts.Node): string | undefined {
  if (ts.isStringLiteralLike(node)) return node.text;
  if (ts.isTemplateExpression(node))
    return [node.head.text, ...node.templateSpans.map(({ literal }) => literal.text)].join("x");
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken) {
    const [left, right] = [textOf(node.left), textOf(node.right)];
    return left === undefined || right === undefined ? undefined : left + right;
  }
  return undefined;
}

function proseOfComments(source: string, comments: ReadonlyMap<number, string>): readonly Paragraph[] {
  const { found, end, add } = gatherer();
  let next = -1;
  let isExample = false;
  for (const [pos, comment] of [...comments].toSorted(([one], [other]) => one - other)) {
    const first = lineAt(source, pos);
    const isAside = /\S/.test(source.slice(source.lastIndexOf("\n", pos) + 1, pos));
    if (first !== next || comment.startsWith("/*")) end();
    isExample = false;
    for (const [n, raw] of comment.split("\n").entries()) {
      const text = raw.replace(/^\s*(?:\/\*\*?|\*(?!\/)|\/\/) ?/, "").replace(/\s*\*\/$/, "");
      const [, tag, rest] = /^\s*@(\w+)\s*(?:\{[^}]*\})?(.*)$/.exec(text) ?? [];
      if (tag !== undefined) isExample = tag === "example";
      if (tag !== undefined || /^\s*$|^\s*\|/.test(text) || ITEM.test(text)) end();
      if (!isExample && !/^\s*$|^\s*\|/.test(text)) add(first + n, (rest ?? text).replace(ITEM, ""));
    }
    next = first + comment.split("\n").length;
    if (comment.startsWith("/*") || isAside) end();
  }
  end();
  return found;
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split("\n").length;
}
