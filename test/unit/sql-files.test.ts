// Where SQL functions stand: one a file, in the file of its name, below a header that says what it is for. The header's
// first paragraph becomes the comment in the database.
import path from "node:path";
import test from "ava";
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";

const FUNCTION = /^create or replace (?:function|aggregate) (:DISPATCH_POLICY_SCHEMA\.)?(\w+)/gm;

for (const { name, text } of sqlFiles("functions")) {
  test(`${name} holds the function of its name, and says what it is for`, (t) => {
    const functions = [...text.matchAll(FUNCTION)];
    t.deepEqual(
      functions.map(([, , one]) => one),
      [path.basename(name, ".sql")],
    );
    for (const [, isPublic, one] of functions)
      t.is(
        one!.startsWith("_"),
        !isPublic,
        "what people call has no underscore, and stands in the schema that they see",
      );
    t.regex(text, /^-- \S/);
    t.false(/^-- The same\b/.test(text), "the same as what? name it");
  });
}

test("what a file creates is described by the first paragraph of its header, on one line", (t) => {
  const text = `-- Does one thing,
-- and another.
--
--   p_a   not of the first paragraph
create or replace function _one(p_a int) returns int language sql as 'select 1';
create or replace aggregate _all(int) (sfunc = int4pl, stype = int);
`;
  const comment = "Does one thing, and another.";
  t.deepEqual(describedIn({ name: "_one.sql", text }), [
    { kind: "routine", name: "_one", comment },
    { kind: "routine", name: "_all", comment },
  ]);
  const view = "-- Shows it.\ncreate or replace view :DISPATCH_POLICY_SCHEMA.it as select 1;\n";
  t.deepEqual(describedIn({ name: "it.sql", text: view }), [
    { kind: "view", name: "it", comment: "Shows it." },
  ]);
});

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
