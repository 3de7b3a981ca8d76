// docs/design.md lists every decision, under its title.
import { readdirSync, readFileSync } from "node:fs";
import test from "ava";

const DOCS = new URL("../../docs/", import.meta.url);

test("each decision is in the list of decisions, under its title, and the list has no other", (t) => {
  const listed = [
    ...readFileSync(new URL("design.md", DOCS), "utf8").matchAll(/^- \[(.+)\]\(decisions\/(.+)\)$/gm),
  ].map(([, title, file]) => [file!, title!] as const);
  const there = readdirSync(new URL("decisions/", DOCS)).map((file) => {
    const title = /^# (.+)$/m.exec(readFileSync(new URL(`decisions/${file}`, DOCS), "utf8"))?.[1];
    return [file, title ?? "no title"] as const;
  });
  t.deepEqual(Object.fromEntries(listed), Object.fromEntries(there));
  t.is(listed.length, there.length);
});
