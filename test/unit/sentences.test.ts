// No sentence is longer than a tired reader can hold: in pages, in the comments of sql/ and src/, and in messages.
import { globSync, readFileSync } from "node:fs";
import test from "ava";
import {
  type Paragraph,
  proseOfPage,
  proseOfSql,
  proseOfTypeScript,
  sentencesOf,
  wordsIn,
} from "../helpers/prose.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const MOST_WORDS = 25;

const READERS: readonly (readonly [string, (text: string) => readonly Paragraph[], ...string[]])[] = [
  ["a page", proseOfPage, "*.md", "llms.txt", "docs/**/*.md", ".github/**/*.md", "examples/**/*.md"],
  ["SQL", proseOfSql, "sql/**/*.sql"],
  ["TypeScript", proseOfTypeScript, "src/**/*.ts", "tasks/**/*.ts"],
];

for (const [what, read, ...globs] of READERS)
  test(`no sentence of ${what} has more than ${MOST_WORDS} words`, (t) => {
    const files = globSync(globs, { cwd: ROOT });
    t.true(files.length > 0);
    const long = files.flatMap((file) =>
      read(readFileSync(ROOT + file, "utf8")).flatMap(({ line, text }) =>
        sentencesOf(text)
          .filter((sentence) => wordsIn(sentence) > MOST_WORDS)
          .map((sentence) => `${file}:${line}: ${wordsIn(sentence)} words: ${sentence}`),
      ),
    );
    t.deepEqual(long, []);
  });

test("paragraphs are read as they are meant", (t) => {
  const texts = (found: readonly Paragraph[]) => found.map(({ line, text }) => `${line} ${text}`);
  t.deepEqual(texts(proseOfPage("# No\n\nOne\ntwo.\n- Item\n```\ncode\n```\n")), ["3 One two.", "5 Item"]);
  t.deepEqual(
    texts(
      proseOfSql(
        "-- One\n-- two.\n--\n--   p_it   a parameter\nselect 1;   -- aside\n-- next\n" +
          "comment on column it.is is 'It''s said.';\nraise exception 'no %', 1;",
      ),
    ),
    ["1 One two.", "5 aside", "6 next", "7 It's said.", "8 no %"],
  );
  t.deepEqual(
    texts(
      proseOfTypeScript(
        "/**\n * One\n * two.\n *\n * @throws {Error} if so\n * @example no()\n */\n" +
          'export const it = "a" + "b"; // aside\n// next\n// to it\nf(/\\/\\*/);\n',
      ),
    ),
    ["2 One two.", "5 if so", "8 aside", "9 next to it", "8 ab"],
  );
  t.deepEqual(sentencesOf('One. "Two." Three (four.) Five'), ["One.", '"Two."', "Three (four.)", "Five"]);
  t.is(wordsIn("See [the page](a b c), `one two` and {@link so it}."), 6);
});
