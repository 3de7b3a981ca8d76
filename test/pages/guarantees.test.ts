// docs/guarantees.md: its example charges once, and what it says of other queues has a source.
import path from "node:path";
import test from "ava";
import type { Task } from "graphile-worker";
import type { AnyPolicy } from "../../src/index.ts";
import { runDueJobs } from "../../src/testing.ts";
import { blocksOf, readersProject, writeFiles } from "../helpers/readers-project.ts";
import { tablesOf } from "../helpers/tables.ts";
import { until } from "../helpers/until.ts";
import { emptyWorld } from "./world.ts";

const PAGE = "docs/guarantees.md";

test("a job of the example that runs twice charges once", async (t) => {
  const project = await readersProject(t);
  t.deepEqual(await writeFiles(project, await blocksOf(PAGE)), ["charge.ts"]);
  const module = (await import(path.join(project, "charge.ts"))) as { charge: AnyPolicy; default: Task };
  const { utils, pool } = await emptyWorld(t, [module.charge]);
  await pool.query("create table charges (once text primary key, account text, cents int)");
  let runs = 0;
  const charge: Task = async (payload, helpers) => {
    await module.default(payload, helpers);
    if (++runs === 1) throw new Error("the worker was killed behind the charge");
  };
  await utils.addJob("charge", { account: "acme", cents: 500 });
  await until("it has run twice", async () => {
    await runDueJobs({ pgPool: pool, policies: [module.charge], taskList: { charge } });
    return runs === 2;
  });
  const { rows } = await pool.query("select account, cents from charges");
  t.deepEqual(rows, [{ account: "acme", cents: 500 }]);
});

test("each cell about another system links its source, or says that none was found", async (t) => {
  const tables = (await tablesOf(PAGE)).filter(([head]) => head?.[0] === "system");
  t.deepEqual(
    tables.map(({ length }) => length - 2), // without the head and this package
    [13, 5],
  );
  for (const [head, own, ...others] of tables) {
    for (const row of [own!, ...others]) t.is(row.length, head!.length, row[0]);
    const bare = others.flatMap(([system, ...cells]) =>
      cells
        .filter((cell) => !/\]\(https:\/\//.test(cell) && cell !== "–")
        .map((cell) => `${system}: ${cell}`),
    );
    t.deepEqual(bare, []);
  }
});
