// SQL functions stand below a comment that says what they are for. Its first paragraph becomes the comment in the database.
import path from "node:path";
import test from "ava";
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";

for (const file of sqlFiles("functions")) {
  test(`${file.name}: each function says what it is for`, (t) => {
    const described = describedIn(file);
    t.true(described.length > 0);
    for (const { name, comment, text } of described) {
      t.is(
        name.startsWith("_"),
        !/^create or replace \w+ :DISPATCH_POLICY_SCHEMA\./m.test(text),
        "what people call has no underscore, and stands in the schema that they see",
      );
      t.regex(comment, /^\S/, name);
    }
  });
}

test("what a file creates is described by the first paragraph of the comment above, on one line", (t) => {
  const text = `-- Does one thing,
-- and another.
--
--   p_a   not of the first paragraph
create or replace function _one(p_a int) returns int language sql as 'select 1';
create or replace aggregate _all(int) (sfunc = int4pl, stype = int);
`;
  const comment = "Does one thing, and another.";
  const described = (text: string) =>
    describedIn({ name: "it.sql", text }).map(({ kind, name, comment }) => ({ kind, name, comment }));
  t.deepEqual(described(`${text}\n-- Does more.\ncreate or replace function _more() as ''`), [
    { kind: "routine", name: "_one", comment },
    { kind: "routine", name: "_all", comment },
    { kind: "routine", name: "_more", comment: "Does more." },
  ]);
  const view = "-- Shows it.\ncreate or replace view :DISPATCH_POLICY_SCHEMA.it as select 1;\n";
  t.deepEqual(described(view), [{ kind: "view", name: "it", comment: "Shows it." }]);
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
