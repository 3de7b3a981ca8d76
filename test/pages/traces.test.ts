// The examples of traces in docs/production.md, as a user would run them.
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import * as names from "../../src/trace-names.ts";
import { testDatabase } from "../helpers/database.ts";
import { examplesOf, fromSources, project } from "../helpers/examples.ts";
import { textOfPage } from "../helpers/readers-project.ts";
import { table } from "../helpers/table.ts";

const PAGE = "docs/production.md";
const section = await textOfPage(PAGE, "Traces");

test("the examples of traces stage two traced jobs", async (t) => {
  const { url, pool } = await testDatabase(t);
  const folder = await project(t);
  for (const [name, code] of await examplesOf(PAGE))
    await writeFile(path.join(folder, name), fromSources(code));
  const [, command] = /```sh\nnode (.*)\n```/.exec(section) ?? [];
  const { stdout } = await promisify(execFile)(process.execPath, command!.split(" "), {
    cwd: folder,
    env: { ...process.env, DATABASE_URL: url },
  });
  const [, traceId] = /traceId: '(\w+)'/.exec(stdout) ?? [];
  const [, spanId] = /\bid: '(\w+)'/.exec(stdout) ?? [];
  t.regex(stdout, /name: 'checkout'/);
  const [, sql] = /```sql\n(.*?)```/s.exec(section) ?? [];
  await pool.query(sql!);
  const staged = await table(pool, "staged_jobs").all({}, "id");
  t.deepEqual(
    staged.map(({ traceparent }) => traceparent),
    [`00-${traceId}-${spanId}-01`, /'(00-.*)'/.exec(sql!)![1]],
  );
});

test("the page names every span and attribute", (t) => {
  const { ATTRIBUTES, OWN_ATTRIBUTES, WAITS, SYSTEM, TRACER } = names;
  const all = [ATTRIBUTES, OWN_ATTRIBUTES, WAITS].flatMap((one) => Object.values<string>(one));
  t.deepEqual(
    [...all, SYSTEM, TRACER].filter((name) => !section.includes(`\`${name}\``)),
    [],
  );
});
