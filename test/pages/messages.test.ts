// docs/operating.md, "Troubleshooting by message": its list of messages is that of the source.
import { globSync, readFileSync } from "node:fs";
import test from "ava";
import { textOfChapter } from "../helpers/page.ts";
import { proseOfTypeScript } from "../helpers/prose.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const chapter = textOfChapter(readFileSync(`${ROOT}docs/operating.md`, "utf8"), "Troubleshooting by message");
/** The messages of the page, several of which may share a line: "…" stands for anything. */
const messages = [...chapter.matchAll(/^- ((?:`[^`]+`(?:, )?)+):/gm)].flatMap(([, list = ""]) =>
  [...list.matchAll(/`([^`]+)`/g)].map(([, message = ""]) => message),
);

const patternOf = (message: string) =>
  new RegExp(
    `^${message
      .split("…")
      .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
      .join(".*")}`,
    "s",
  );

/** The texts of a file with the line of each. "x" stands for a value. */
const sources = globSync("src/**/*.ts", { cwd: ROOT, exclude: ["src/cli/**"] }).map((file) => {
  const text = readFileSync(ROOT + file, "utf8");
  return { file, lines: text.split("\n"), texts: proseOfTypeScript(text) };
});

test("each message of the page is in the source", (t) => {
  const texts = sources.flatMap((source) => source.texts.map(({ text }) => text));
  t.true(messages.length > 45, `${messages.length}`);
  for (const message of messages) {
    const starts = texts.some(
      (text) => patternOf(message).test(text) || patternOf(message).test(`${text}: x`),
    );
    t.true(starts, message);
  }
});

test("each warning and error that the source logs is on the page", (t) => {
  const missing: string[] = [];
  let found = 0;
  for (const { file, lines, texts } of sources)
    for (const [n, line] of lines.entries()) {
      if (!/logger(\)|\(\))?\??(\.(warn|error)\(|\[unmanaged)/.test(line)) continue;
      const last = /[([]$/.test(line) ? n + 3 : n + 1;
      const near = texts.filter((one) => one.line > n && one.line <= last).map(({ text }) => text);
      const [said = ""] = near.toSorted((one, other) => other.length - one.length);
      if (!/[a-wyz]{3}/.test(said)) continue; // in a function or a constant, which the test above finds
      found++;
      const isListed = messages.some((message) => patternOf(message).test(said));
      if (!isListed) missing.push(`${file}:${n + 1}: ${said}`);
    }
  t.true(found > 20, `${found}`);
  t.deepEqual(missing, []);
});
