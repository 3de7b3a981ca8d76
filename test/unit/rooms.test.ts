// How sql/functions lies: rooms call downward, and a table that many touch has one writing room. See docs/engine.md.
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import {
  callsOf,
  ROOMS,
  type SqlFunction,
  sqlFunctions,
  tables,
  writersOf,
} from "../../scripts/docs/rooms.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const functions = sqlFunctions();
const calls = callsOf(functions);
const order = Object.keys(ROOMS);

const OWNERS = {
  limiters: "limiters",
  partitions: "partitions",
  staged_jobs: "jobs",
  in_flight_jobs: "jobs",
} as const;

test("each room is known, and none is empty", (t) => {
  t.deepEqual([...new Set(functions.map(({ room }) => room))].toSorted(), order.toSorted());
});

test("a function calls none of a room above its own", (t) => {
  const roomOf = new Map(functions.map(({ name, room }) => [name, room]));
  const up = [...calls].flatMap(([it, called]) =>
    called
      .filter((name) => order.indexOf(roomOf.get(name)!) > order.indexOf(it.room))
      .map((name) => `${it.name} > ${name}`),
  );
  t.deepEqual(up, []);
});

test("of src, only pages and their statements name a function of the room pages", (t) => {
  const names = functions.filter(({ room }) => room === "pages").map(({ name }) => name);
  const named = new RegExp(`\\b(?:${names.join("|")})\\b`);
  const others = globSync("src/**/*.ts", { cwd: ROOT, exclude: ["src/ui/**", "src/db/overview.ts"] });
  t.true(others.length > 100);
  t.deepEqual(
    others.filter((file) => named.test(readFileSync(path.join(ROOT, file), "utf8"))),
    [],
  );
});

for (const [table, owner] of Object.entries(OWNERS))
  test(`only the room ${owner} writes ${table}`, (t) => {
    const outside = (writersOf(tables(), functions).get(table) ?? []).filter(({ room }) => room !== owner);
    t.deepEqual(
      outside.map(({ name }) => name),
      [],
    );
  });

test("no functions call each other in a circle", (t) => {
  const byName = new Map<string, SqlFunction[]>();
  for (const it of functions) byName.set(it.name, [...(byName.get(it.name) ?? []), it]);
  const circles: string[] = [];
  const done = new Set<string>();
  const visit = (name: string, path: readonly string[]): void => {
    if (path.includes(name)) circles.push([...path.slice(path.indexOf(name)), name].join(" > "));
    if (done.has(name) || path.includes(name)) return;
    for (const it of byName.get(name) ?? [])
      for (const called of calls.get(it) ?? []) visit(called, [...path, name]);
    done.add(name);
  };
  for (const { name } of functions) visit(name, []);
  t.deepEqual(circles, []);
});
