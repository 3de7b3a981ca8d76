// Where SQL functions stand: one a file, in the file of its name, below a header that says what it is for.
import path from "node:path";
import test from "ava";
import { sqlFiles } from "../../src/db/sql-files.ts";

const FUNCTION = /^create or replace function :DISPATCH_POLICY_SCHEMA\.(\w+)/gm;

for (const { name, text } of sqlFiles("functions")) {
  test(`${name} holds the function of its name, and says what it is for`, (t) => {
    const functions = [...text.matchAll(FUNCTION)].map(([, one]) => one);
    t.deepEqual(functions, [path.basename(name, ".sql")]);
    t.regex(text, /^-- \S/);
    t.false(/^-- The same\b/.test(text), "the same as what? name it");
  });
}

for (const { name, text } of sqlFiles("views")) {
  test(`${name} holds the view of its name`, (t) => {
    const views = [...text.matchAll(/^create (?:or replace )?view :DISPATCH_POLICY_SCHEMA\.(\w+)/gm)];
    t.deepEqual(
      views.map(([, one]) => one),
      [path.basename(name, ".sql")],
    );
    t.regex(text, /^-- \S/);
  });
}
