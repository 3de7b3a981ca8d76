// How sql/functions lies: rooms call downward, and a table that many touch has one writing room. See docs/engine.md.
import test from "ava";
import {
  callsOf,
  ROOMS,
  type SqlFunction,
  sqlFunctions,
  tables,
  writersOf,
} from "../../scripts/docs/rooms.ts";

const functions = sqlFunctions();
const calls = callsOf(functions);
const order = Object.keys(ROOMS);

/** Who writes a table of another room yet. Take out what you mend; nothing comes in. */
const WRITES_OUTSIDE: Record<string, readonly string[]> = {
  limiters: [
    "_collect_partitions",
    "_forget_policy",
    "_free_slots",
    "_look_again",
    "_occupy_slot",
    "_put_in_flight",
    "_put_in_force",
    "_wake_all",
    "sync",
    "take",
  ],
  partitions: [
    "_apply_arrivals",
    "_delay_denied",
    "_expire",
    "_forget_policy",
    "_promote",
    "_skip_denied",
    "_sweep_clock",
    "resume",
  ],
  staged_jobs: ["_admit_few", "_sweep_clock", "permanently_fail_jobs", "reschedule_jobs"],
  in_flight_jobs: ["_admit_few", "_admit_start", "_free_slots", "_pass_slots_on", "_settle", "_sweep_clock"],
};

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

for (const [table, owner] of Object.entries(OWNERS))
  test(`only the room ${owner} writes ${table}`, (t) => {
    const outside = (writersOf(tables(), functions).get(table) ?? []).filter(({ room }) => room !== owner);
    t.deepEqual(outside.map(({ name }) => name).toSorted(), (WRITES_OUTSIDE[table] ?? []).toSorted());
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
