// docs/decisions/README.md lists every decision, under its title. What a rejected alternative names is there.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import test from "ava";
import { MUTANTS } from "../model/mutants.ts";
import { FAULTS } from "../races/race/faults.ts";

const ROOT = new URL("../../", import.meta.url);
const DOCS = new URL("docs/", ROOT);
const PAGES = readdirSync(new URL("decisions/", DOCS)).filter((file) => file !== "README.md");

test("each decision is in the list of decisions, under its title, and the list has no other", (t) => {
  const listed = [
    ...readFileSync(new URL("decisions/README.md", DOCS), "utf8").matchAll(/^- \[(.+)\]\((.+)\)$/gm),
  ].map(([, title, file]) => [file!, title!] as const);
  const there = PAGES.map((file) => {
    const title = /^# (.+)$/m.exec(readFileSync(new URL(`decisions/${file}`, DOCS), "utf8"))?.[1];
    return [file, title ?? "no title"] as const;
  });
  t.deepEqual(Object.fromEntries(listed), Object.fromEntries(there));
  t.is(listed.length, there.length);
});

interface Alternative {
  readonly page: string;
  readonly text: string;
}

const alternatives: readonly Alternative[] = PAGES.flatMap((page) => {
  const [, rejected = ""] = readFileSync(new URL(`decisions/${page}`, DOCS), "utf8").split("**Rejected");
  const bullets = rejected.split("\n**")[0]!.matchAll(/^- (.+)$/gm);
  return [...bullets].map(([, text]) => ({ page, text: text! }));
});

test("the tests that a rejected alternative names are in their files", (t) => {
  t.true(alternatives.filter(({ text }) => / in `test\//.test(text)).length > 40);
  const missing = alternatives.flatMap(({ page, text }) =>
    [...text.matchAll(/((?:(?:,? and |, )?`[^`]+`)+),? in `(test\/[^`]+)`/g)].flatMap(([, titles, file]) => {
      const there = existsSync(new URL(file!, ROOT))
        ? withoutValues(readFileSync(new URL(file!, ROOT), "utf8"))
        : "";
      return [...titles!.matchAll(/`([^`]+)`/g)]
        .map(([, title]) => title!.replace(/<[^>]*>/g, "*"))
        .filter((title) => !there.includes(title))
        .map((title) => `${page}: ${file}: ${title}`);
    }),
  );
  t.deepEqual(missing, []);
});

test("the mutants and faults that a rejected alternative names are planted", (t) => {
  const named = alternatives.flatMap(({ text }) =>
    [...text.matchAll(/\b(?:mutant|fault):? `([^`]+)`/gi)].map(([, name]) => name!),
  );
  t.true(named.length > 3, `${named.length}`);
  t.deepEqual(
    named.filter((name) => !(name in MUTANTS) && !(name in FAULTS)),
    [],
  );
});

/** A source whose values in titles are stars. */
function withoutValues(source: string): string {
  return source.replace(/\$\{[^}]*\}/g, "*");
}
