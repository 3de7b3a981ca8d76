// Every snippet of the pages and of the docstrings: TypeScript compiles, SQL and examples run, and commands are there.
//
// Many pages have a test of their own, which runs what stands there as its reader would. This one leaves no snippet out.
import { readFileSync } from "node:fs";
import http from "node:http";
import { pathToFileURL } from "node:url";
import { createNoopMeter } from "@opentelemetry/api";
import test, { type ExecutionContext } from "ava";
import express from "express";
import { WorkerPreset } from "graphile-worker";
import { Hono } from "hono";
import { Kysely, PostgresDialect } from "kysely";
import postgres from "postgres";
import { z } from "zod";
import { FLAGS } from "../../scripts/docs/options.ts";
import { COMMANDS } from "../../src/cli/commands.ts";
import * as index from "../../src/index.ts";
import * as testing from "../../src/testing.ts";
import * as ui from "../../src/ui/ui.ts";
import { blocksOf } from "../helpers/readers-project.ts";
import { silent } from "../helpers/silent.ts";
import {
  compiled,
  type Example,
  PAGES,
  snippetsProject,
  textOf,
  writeExamples,
  writePages,
} from "../helpers/snippets.ts";
import { emptyWorld } from "./world.ts";

/** By names that the compiler does not follow: the types of Drizzle name libraries that are not installed. */
const DRIZZLE = ["drizzle-orm", "drizzle-orm/node-postgres"];

const { definePolicy, makePolicyUtils, RetryAfter } = index;

/** The tests that run all statements of these pages, or of one section of them. */
const RUN_ELSEWHERE: Readonly<Record<string, string>> = {
  "README.md": "test/host/example.test.ts",
  "docs/operating.md": "test/host/example.test.ts",
  "docs/production.md Security": "test/helpers/roles.ts",
  "docs/production.md Traces": "test/pages/traces.test.ts",
};

/** Examples that do not run here, and why. */
const NOT_RUN: Readonly<Record<string, string>> = {
  createUi: "it listens",
  fromPrisma: "it is not installed: npm run test:prisma",
  pglitePool: "it takes seconds: test/testing/page.test.ts",
  policyEvents: "it needs a runner",
  virtualClock: "it changes the clock of this process, and Node 22 does not know `using`",
  wrapTaskList: "it does not end: test/host/wrap-task-list.test.ts",
  dispatch_policy_tick: "it passes on what the package exports: test/host/package.test.ts",
};

test.serial("each block of TypeScript on a page compiles, and each example of a docstring", async (t) => {
  const project = await snippetsProject(t);
  t.true((await writePages(project)) > 40);
  t.true((await writeExamples(project)).length > 70);
  t.deepEqual(await compiled(project), []);
});

test.serial("each example of a docstring runs", async (t) => {
  const project = await snippetsProject(t);
  // test/features/docstrings.test.ts runs those of the utils
  const examples = (await writeExamples(project)).filter(
    ({ title, owner }) => !(title in NOT_RUN) && owner !== "Operate" && owner !== "PolicyUtils",
  );
  const isInTask = ({ title }: Example) => title.startsWith("helpers.");
  t.true(examples.some(isInTask) && examples.length > 30, `${examples.length}`);
  const { utils, pool } = await enter(t);
  for (const example of examples.filter((one) => !isInTask(one))) await run(t, example);

  const fetchEndpoint = Reflect.get(globalThis, "fetchEndpoint") as index.AnyPolicy;
  await utils.addJob(fetchEndpoint, { endpointId: "last", accountId: "acme" });
  let ran = false;
  await testing.runDueJobs({
    ...{ pgPool: pool, policies: [fetchEndpoint] },
    taskList: {
      async fetch_endpoint(_, helpers) {
        if (ran) return;
        ran = true;
        Object.assign(globalThis, { helpers });
        for (const example of examples.filter(isInTask)) await run(t, example);
      },
    },
  });
  t.true(ran);
});

/** The names that examples take for granted, with their values. */
async function enter(t: ExecutionContext) {
  const fetchEndpoint = definePolicy("fetch_endpoint", {
    context: (payload: unknown) => ({ account: (payload as { accountId: string }).accountId }),
    partitionBy: "endpointId",
    gates: ({ concurrency, throttle }) => [
      concurrency({ name: "account", scope: (ctx) => ctx.account, max: 40 }),
      throttle({ name: "all", scope: "policy", rate: 500, per: "1 second" }),
    ],
  });
  const { utils, pool, database } = await emptyWorld(t, [fetchEndpoint]);
  const client = await pool.connect();
  t.teardown(() => client.release());
  const controller = new AbortController();
  controller.abort();
  const kysely = new Kysely<object>({ dialect: new PostgresDialect({ pool }) });
  const [{ sql }, { drizzle }] = await Promise.all(DRIZZLE.map((name) => import(name)));
  const postgresJs = postgres(database.url, { onnotice: () => {} });
  t.teardown(() => postgresJs.end());
  const libraries = {
    fromKysely: { db: kysely },
    fromDrizzle: { db: drizzle(pool), sql },
    fromPostgresJs: { sql: postgresJs },
  };
  const worker = { connectionString: database.url, logger: silent };
  Object.assign(globalThis, index, testing, ui, {
    ...{ fetchEndpoint, utils, pool, client, controller, libraries, express, Hono, http, WorkerPreset, z },
    meter: createNoopMeter(),
    ...{ clock: testing.fixedClock(), pgPool: pool, connectionString: database.url, authorize: () => null },
    ...{ endpoints: ["ep1", "ep2"].map((endpointId) => ({ endpointId, accountId: "acme" })) },
    ...{
      fetchPage: definePolicy("fetch_page", { partitionBy: "url" }),
      response: new Response(null, { status: 429 }),
    },
    preset: { extends: [WorkerPreset, index.dispatchPolicyPreset({ policies: [fetchEndpoint] })], worker },
    // utils that an example makes and leaves are closed here
    makePolicyUtils: async (options: index.PolicyUtilsOptions) => {
      const made = await makePolicyUtils({ ...options, logger: silent });
      t.teardown(() => made.release());
      return made;
    },
  });
  return { utils, pool };
}

/** What an example throws to show how is no failure. */
async function run(t: ExecutionContext, { title, file }: Example): Promise<void> {
  const { libraries } = globalThis as unknown as { libraries: Readonly<Record<string, object>> };
  Object.assign(globalThis, libraries[title]);
  const { log } = console;
  console.log = () => {};
  try {
    await import(pathToFileURL(file).href);
    t.pass();
  } catch (error) {
    if (!(error instanceof RetryAfter)) t.fail(`${title}: ${error}\n${readFileSync(file, "utf8")}`);
  } finally {
    console.log = log;
  }
}

async function statementsOf(page: string, section?: string): Promise<string[]> {
  const blocks = (await blocksOf(page, section)).filter(({ language }) => language === "sql");
  return blocks.flatMap(({ text }) => text.split(/;(?:\s*--.*)?$/m).filter((one) => one.trim() !== ""));
}

test("each statement on a page runs, here or where the page's own test is", async (t) => {
  const of = (name: string) => definePolicy(name, { tasks: ["fetch_endpoint"], partitionBy: "endpointId" });
  const { pool } = await emptyWorld(t, [
    of("fetch_endpoint"),
    definePolicy("report", { partitionBy: "key" }),
  ]);
  const later = await makePolicyUtils({ pgPool: pool, policies: [of("fetch")], logger: silent });
  t.teardown(() => later.release());
  const client = await pool.connect();
  let ran = 0;
  const skipped = new Map<string, string[]>();
  for (const [what, elsewhere] of Object.entries(RUN_ELSEWHERE)) {
    const [page = "", section] = what.split(" ");
    t.true(textOf(elsewhere).includes(page), `${elsewhere} runs ${page}`);
    skipped.set(page, [...(skipped.get(page) ?? []), ...(await statementsOf(page, section))]);
  }
  for (const page of PAGES) {
    for (const statement of await statementsOf(page)) {
      if (skipped.get(page)?.includes(statement)) continue;
      await client.query("begin");
      await t.notThrowsAsync(client.query(statement), `${page}: ${statement}`);
      await client.query("rollback");
      ran++;
    }
  }
  client.release();
  t.true(ran > 10, `${ran}`);
});

test("each command on a page is there, with its flags", async (t) => {
  const all = FLAGS.filter(({ command }) => command === "every command");
  const flagsOf = (name: string) =>
    [...all, ...FLAGS.filter(({ command }) => command === `\`${name}\``)].map(({ flag }) =>
      flag.replace(/^-\w, /, ""),
    );
  const names = ["completion", ...COMMANDS.map(({ name }) => name)]; // yargs brings the first
  let found = 0;
  for (const page of PAGES)
    for (const { language, text } of await blocksOf(page)) {
      if (!["sh", "console"].includes(language)) continue;
      for (const [line, name = ""] of text.matchAll(
        /^(?:\$ )?(?:npx )?graphile-worker-dispatch-policy ([\w-]+).*$/gm,
      )) {
        t.true(names.includes(name), `${page}: ${line}`);
        const known = ["--help", ...flagsOf(name)];
        for (const [flag] of line.matchAll(/(?<=\s)--[\w-]+/g))
          t.true(known.includes(flag), `${page}: ${line}: ${flag}`);
        found++;
      }
    }
  t.true(found > 25, `${found}`);
});

test("each npm script on a page is there", (t) => {
  const { scripts } = JSON.parse(textOf("package.json"));
  for (const page of PAGES.filter((one) => !one.startsWith("CHANGELOG")))
    for (const [line, name = ""] of textOf(page).matchAll(/\bnpm run (?:-s )?([\w:]+)/g))
      t.true(name in scripts, `${page}: ${line}`);
});
