// Each project of examples/, copied out and run by its one command on a fresh database; and what it says of itself.
import { execFile } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { atLength } from "../helpers/at-length.ts";
import { testDatabase } from "../helpers/database.ts";
import { copyOut, runScript } from "../helpers/example-project.ts";
import { roles } from "../helpers/roles.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const NAMES = globSync("*/package.json", { cwd: `${ROOT}examples` })
  .map(path.dirname)
  .sort();
/** What a checkout does not have, with the peers of each. Who needs it cannot run here. */
const ABSENT: Readonly<Record<string, readonly string[]>> = {
  next: ["react", "react-dom"],
  "@prisma/adapter-pg": ["@prisma/client"],
};
/** test/examples has its tests. */
const NOT_RUN = ["nextjs", "prisma"];
const MINUTE = 60_000;
const SELF = "graphile-worker-dispatch-policy";

interface Outcome {
  readonly stdout: string;
  /** The numbers that it printed, in their order. */
  readonly numbers: readonly number[];
  readonly pool: pg.Pool;
}

const numbersIn = (text: string) => [...text.matchAll(/\d+(?:\.\d+)?/g)].map(Number);

/** Runs one after the other, because each keeps the processor busy. */
function example(
  name: string,
  expected: RegExp,
  check: (t: ExecutionContext, it: Outcome) => unknown = () => {},
) {
  atLength(`examples/${name}`, async (t) => {
    t.timeout(2 * MINUTE);
    const database = await testDatabase(t, { migrated: false });
    const stdout = await runScript(await prepared(t, name, database), "start", {
      DATABASE_URL: database.url,
    });
    t.regex(stdout, expected);
    await check(t, { stdout, numbers: numbersIn(stdout), pool: database.pool });
  });
  ran.push(name);
}

const ran: string[] = [];

/** Roles belong to the whole server, so a copy has names of its own for them. */
async function prepared(t: ExecutionContext, name: string, database: { url: string; pool: pg.Pool }) {
  const folder = await copyOut(t, name);
  if (name !== "accounts") return folder;
  const { nameOf } = roles(t, database, ["app_accounts", "app_account_limits"]);
  for (const file of ["limits.sql", "main.ts"]) {
    const text = await readFile(path.join(folder, file), "utf8");
    await writeFile(path.join(folder, file), text.replace(/\bapp_\w+/g, nameOf));
  }
  return folder;
}

example(
  "accounts",
  /^acme runs 1 at once, beta 4\nacme runs 3 at once; set by: table accounts\nall jobs have run\n$/,
);

example(
  "adaptive",
  /^answered 300 of 300 questions; the partner refused \d+ requests\nup to \d+ were answered at once, and [1-3] while it took three\nof the first 140 answers: large \d+, small \d+\n$/,
  (t, { numbers: [, , refused = 0, most = 0, , , large = 0, small = 0], stdout }) => {
    t.true(most > 3 && refused > 0, `the limit has grown until the partner refused: ${stdout}`);
    t.true(large > small, `the dearer plan gets more: ${stdout}`);
  },
);

example(
  "admin-pages",
  /^((node|express|fastify): a stranger gets 303, to \/sign-in\n\2: who is signed in gets 200, with the policy send_mail\n){3}$/,
);

example(
  "backfill",
  /^filled 20 rows in [\d.]+ s\nmade 6 exports, at most [12] at once\n$/,
  (t, { numbers }) => {
    // 19 spaces of 50 ms; the first job may have started late, and late ticks are made up for
    t.true(numbers[1]! >= 0.4, "it is evenly spaced");
  },
);

example(
  "chain",
  /^stored 12 reports in 13 downloads\nrendered 12 reports, at most [12] at once\n$/,
  async (t, { pool }) => {
    const { rows } = await pool.query("select distinct rendered from reports");
    t.deepEqual(rows, [{ rendered: 1 }], "the download that ran twice has added one job");
  },
);

example("commonjs", /^hello Ana, of team red\nhello Bo, of team red\nhello Cy, of team red\n$/);

example(
  "fair-shares",
  /^of the first 40 jobs: large \d+, small \d+, late 1\nthe late tenant's job came as number \d+\n$/,
  (t, { numbers: [, large = 0, small = 0, , place = 0], stdout }) => {
    // thrice as many in the long run: a pass leaves out a tenant whose row another transaction has, and a later one makes up
    t.true(large > small, stdout);
    t.true(place <= 10, `a quiet tenant passes backlogs: ${stdout}`);
  },
);

example(
  "llm",
  /^answered 60 of 60 prompts; the model refused \d+ requests\nthey were estimated at 24300 tokens, and cost 5100\nthe limit began at 2 and let up to \d+ requests go at once\n$/,
  (t, { numbers: [, , refused = 0, , , , most = 0], stdout }) => {
    t.true(most > 6 && refused > 0, `the limit has grown until the model refused: ${stdout}`);
  },
);

example(
  "partner-429s",
  /^accepted 16 orders, refused 1\nacme asked again after \d+ ms\nbeta sent \d orders meanwhile\n$/,
  async (t, { numbers: [, , ms = 0, beta = 0], pool, stdout }) => {
    t.true(ms >= 990, `the hold is as long as Retry-After says: ${stdout}`);
    t.true(beta > 0, `the other account goes on: ${stdout}`);
    const { rows } = await pool.query(
      "select partition, reason from dispatch_policy.audit where verb = 'hold'",
    );
    t.deepEqual(rows, [{ partition: "acme", reason: "429 from the partner" }]);
  },
);

example(
  "nestjs",
  /^ana signs up for the first time: 201; 1 sign-up, 1 job\nana signs up for the second time: 409; 1 sign-up, 1 job\n$/,
);

example("processes", /^60 reports ran in \d processes, at most \d at once\n$/, (t, { numbers, stdout }) => {
  t.true(numbers[1]! >= 2 && numbers[2]! <= 4, stdout);
});

example(
  "quotas",
  /^started 12 of 20 jobs in [\d.]+ s\n8 wait for gate "month" until \d{4}-\d\d-01T0[45]:00:00\.000Z\n$/,
  (t, { numbers }) => {
    t.true(numbers[2]! > 1, "the window of a second has stretched it over three of them");
  },
);

example("sql-trigger", /^the trigger staged 5 jobs\nall orders are shipped, at most 1 of a shop at once\n$/);

example(
  "transactions",
  /^(?:(?:pg|kysely|drizzle|postgres\.js): committed 1 sign-up, 1 job; rolled back 0 sign-up, 0 job\n){4}$/,
);

example("webhooks", /^received 32 events$/m, async (t, { stdout, pool }) => {
  t.regex(
    stdout,
    /^staged before any worker runs: 31$/m,
    "30 releases and a sign-up; order_paid has no policy",
  );
  // The second one is staged by a task. When that task runs depends on the machine.
  const place = Number(/came as number (\d+) and \d+$/m.exec(stdout)?.[1]);
  t.true(place < 20, `the quiet customer does not wait for the loud one's 30: ${stdout}`);
  const holds = await pool.query("select reason from dispatch_policy.audit where verb = 'hold'");
  t.deepEqual(holds.rows, [{ reason: "429 from the endpoint" }]);
  const left = await pool.query(`select
    (select count(*)::int from dispatch_policy.staged_jobs) as staged,
    (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
    (select count(*)::int from graphile_worker.jobs where task_identifier <> 'dispatch_policy_tick') as jobs`);
  t.deepEqual(left.rows, [{ staged: 0, in_flight: 0, jobs: 0 }]);
});

test("each example with a start command is run here, or has a test in test/examples", (t) => {
  t.deepEqual([...ran, ...NOT_RUN].toSorted(), NAMES);
});

test.serial("the tests of examples/webhooks pass without a server", async (t) => {
  t.timeout(3 * MINUTE); // PGlite's start takes seconds of processor time
  const stdout = await runScript(await copyOut(t, "webhooks"), "test", { DATABASE_URL: undefined });
  t.regex(stdout, /^ℹ pass 3$/m, stdout);
  t.regex(stdout, /^ℹ fail 0$/m, stdout);
});

test.serial(
  "npm run example starts one in a checkout, and lists them all if there is none of that name",
  async (t) => {
    const { url } = await testDatabase(t, { migrated: false });
    const run = (name: string) =>
      promisify(execFile)(process.execPath, ["scripts/example.ts", name], {
        cwd: ROOT,
        env: { ...process.env, DATABASE_URL: url },
      });
    t.regex((await run("commonjs")).stdout, /^hello Ana, of team red$/m);
    const { code, stderr } = await t.throwsAsync<Error & { code: number; stderr: string }>(run("nothing"));
    t.is(code, 2);
    t.regex(stderr, /^There is no example "nothing"\. Name one of these:\n {2}accounts\n {2}adaptive\n/);
    const absent = await t.throwsAsync<Error & { stderr: string }>(run("nextjs"));
    t.regex(
      absent.stderr,
      /^examples\/nextjs needs next, react, react-dom, which a checkout does not have\. Copy/,
    );
  },
);

test("an example imports its own files, Node's, and the packages that its package.json names, as they are tested", (t) => {
  const root = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8"));
  const pglite = "@electric-sql/pglite";
  const tested = {
    ...{ ...root.devDependencies, ...root.dependencies, ...root.peerDependencies },
    ...JSON.parse(readFileSync(`${ROOT}test/drivers/prisma/package.json`, "utf8")).dependencies,
    ...{ [SELF]: `^${root.version}`, [pglite]: root.devDependencies[pglite] },
  };
  for (const name of NAMES) {
    const { dependencies, devDependencies } = manifestOf(name);
    const declared: Record<string, string> = { ...dependencies, ...devDependencies };
    const imported = [...new Set(importsOf(name).map(packageOf))];
    const needed = new Set([...imported, ...imported.flatMap(peersOf)]);
    t.deepEqual(
      Object.keys(declared)
        .filter((library) => !isTool(library))
        .sort(),
      [...needed].sort(),
      name,
    );
    for (const [library, version] of Object.entries(declared)) {
      if (tested[library]) t.is(version, tested[library], `${name}: ${library}`);
      else t.regex(version, /^\d+\.\d+\.\d+$/, `${name}: ${library}, as it was tried by hand`);
    }
  }
});

test("each example has a README that names its command, and a line in the list", async (t) => {
  const list = readFileSync(`${ROOT}examples/README.md`, "utf8");
  for (const name of await readdir(`${ROOT}examples`)) {
    if (name === "README.md" || name === "demo") continue;
    const readme = readFileSync(`${ROOT}examples/${name}/README.md`, "utf8");
    t.true(list.includes(`[${name}](${name}/README.md)`), name);
    if (ran.includes(name)) t.true(readme.includes(`\`npm run example ${name}\``), name);
  }
});

/** A compiler, a generator or types: nothing imports them. */
const isTool = (library: string) => /^(typescript$|prisma$|@types\/)/.test(library);

/** What a package needs beside it. */
function peersOf(library: string): readonly string[] {
  if (ABSENT[library]) return ABSENT[library];
  const file = library === SELF ? `${ROOT}package.json` : `${ROOT}node_modules/${library}/package.json`;
  if (!existsSync(file)) return [];
  const { peerDependencies = {}, peerDependenciesMeta = {} } = JSON.parse(readFileSync(file, "utf8"));
  return Object.keys(peerDependencies).filter((peer) => !peerDependenciesMeta[peer]?.optional);
}

function manifestOf(name: string) {
  return JSON.parse(readFileSync(`${ROOT}examples/${name}/package.json`, "utf8"));
}

/** What its files import, without Node's own modules. A path must stay in the folder. */
function importsOf(name: string): string[] {
  const folder = `${ROOT}examples/${name}`;
  const files = globSync("**/*.{ts,tsx,js}", { cwd: folder, exclude: ["dist/**", "**/node_modules/**"] });
  return files.flatMap((file) => {
    const specifiers = [
      ...readFileSync(path.join(folder, file), "utf8").matchAll(/(?:from |require\()"([^"]+)"/g),
    ]
      .map(([, specifier = ""]) => specifier)
      .filter((specifier) => !specifier.startsWith("node:"));
    const outside = specifiers.filter(
      (specifier) => specifier.startsWith(".") && path.join(path.dirname(file), specifier).startsWith(".."),
    );
    if (outside.length > 0) throw new Error(`${name}/${file} imports ${outside.join(", ")}`);
    return specifiers.filter((specifier) => !specifier.startsWith("."));
  });
}

function packageOf(specifier: string): string {
  return specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");
}
