// The examples of docs/traces.md, as a user would run them.
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import * as names from "../../src/trace-names.ts";
import { testDatabase } from "../helpers/database.ts";
import { examplesOf, fromSources, project } from "../helpers/examples.ts";
import { table } from "../helpers/table.ts";

const PAGE = "docs/traces.md";

test("the examples of docs/traces.md stage two traced jobs", async (t) => {
  const { url, pool } = await testDatabase(t);
  const folder = await project(t);
  const page = await readFile(new URL(`../../${PAGE}`, import.meta.url), "utf8");
  for (const [name, code] of await examplesOf(PAGE))
    await writeFile(path.join(folder, name), fromSources(code));
  const [, command] = /```sh\nnode (.*)\n```/.exec(page) ?? [];
  const { stdout } = await promisify(execFile)(process.execPath, command!.split(" "), {
    cwd: folder,
    env: { ...process.env, DATABASE_URL: url },
  });
  const [, traceId] = /traceId: '(\w+)'/.exec(stdout) ?? [];
  const [, spanId] = /\bid: '(\w+)'/.exec(stdout) ?? [];
  t.regex(stdout, /name: 'checkout'/);
  const [, sql] = /```sql\n(.*?)```/s.exec(page) ?? [];
  await pool.query(sql!);
  const staged = await table(pool, "staged_jobs").all({}, "id");
  t.deepEqual(
    staged.map(({ traceparent }) => traceparent),
    [`00-${traceId}-${spanId}-01`, /'(00-.*)'/.exec(sql!)![1]],
  );
});

test("docs/traces.md names every span and attribute", async (t) => {
  const page = await readFile(new URL(`../../${PAGE}`, import.meta.url), "utf8");
  const { ATTRIBUTES, OWN_ATTRIBUTES, WAITS, SYSTEM, TRACER } = names;
  const all = [ATTRIBUTES, OWN_ATTRIBUTES, WAITS].flatMap((one) => Object.values<string>(one));
  t.deepEqual(
    [...all, SYSTEM, TRACER].filter((name) => !page.includes(`\`${name}\``)),
    [],
  );
});
