// The snippets of all pages and of the docstrings of the API, in a project where each is a file.
import { execFile } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ITEMS } from "../../scripts/docs/items.ts";
import * as index from "../../src/index.ts";
import * as testing from "../../src/testing.ts";
import * as ui from "../../src/ui/ui.ts";
import { blocksOf, writeFiles } from "./readers-project.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const SELF = "graphile-worker-dispatch-policy";
const TASK = "tasks/dispatch_policy_tick";

/** An example of a docstring. */
export interface Example {
  readonly title: string;
  readonly owner: string | undefined;
  /** Its file in the project. */
  readonly file: string;
}

/** Names that examples take for granted, beside what the package exports, with their types. */
const WORLD: Readonly<Record<string, string>> = {
  app: `import("express").Express`,
  authorize: `import("${SELF}/ui").UiOptions["authorize"]`,
  client: `import("pg").PoolClient`,
  clock: `import("${SELF}/testing").FixedClock`,
  connectionString: "string",
  controller: "AbortController",
  count: "(policy: string, jobs: number) => void",
  endpoints: "readonly { endpointId: string; accountId: string }[]",
  express: "() => import('express').Express",
  fetchEndpoint: `import("${SELF}").Policy<"fetch_endpoint", Fetch, Fetch, { rate: number }>`,
  fetchPage: `import("${SELF}").Policy<"fetch_page", { url: string }, { url: string }, {}>`,
  helpers: `import("${SELF}").PolicyJobHelpers`,
  Hono: `typeof import("hono").Hono`,
  http: `typeof import("node:http")`,
  job: "{ readonly id: string }",
  meter: `import("@opentelemetry/api").Meter`,
  options: `import("graphile-worker").RunnerOptions`,
  pgPool: `import("pg").Pool`,
  PGlite: `typeof import("@electric-sql/pglite").PGlite`,
  pool: `import("pg").Pool`,
  preset: "GraphileConfig.Preset",
  response: "Response",
  runner: `import("graphile-worker").Runner`,
  runTaskList: `typeof import("graphile-worker").runTaskList`,
  tasks: `import("graphile-worker").TaskList`,
  utils: `import("${SELF}").PolicyUtils`,
  WorkerPreset: `typeof import("graphile-worker").WorkerPreset`,
  z: `typeof import("zod").z`,
};

/** The same names mean something else in the examples of these. */
const OWN: Readonly<Record<string, string>> = {
  fromDrizzle: `declare const db: import("drizzle-orm/node-postgres").NodePgDatabase;\ndeclare const sql: typeof import("drizzle-orm").sql;`,
  fromKysely: `declare const db: import("kysely").Kysely<object>;`,
  fromPostgresJs: `declare const sql: import("postgres").Sql;`,
  shared: `declare const throttle: typeof import("${SELF}").throttle;`,
  fromPrisma: `declare const prisma: { $transaction<T>(run: (tx: import("${SELF}").PrismaLike) => Promise<T>): Promise<T> };`,
};

/** A gate in an example stands in a policy, whose context has these. */
const GATES = ["throttle", "concurrency", "adaptiveConcurrency"];
const CONTEXT = "{ account: string; ratePerMinute: number; gigabytes: number }";

/** Files that pages take from other pages, or from the reader's application. */
const FROM_OTHERS: Readonly<Record<string, string>> = {
  "policies.ts": "README.md",
  "graphile.config.ts": "README.md",
  "admin.ts": "docs/ui.md",
};
const SESSION = `export declare function userOf(cookie: string | null): Promise<{ name: string; isAdmin: boolean } | null>;
export declare function customerOf(cookie: string | null): Promise<{ id: string; name: string; endpoints: string[] } | null>;
export declare function userIn(request: object): { name: string; isAdmin: boolean } | undefined;
`;

/** Its examples are those of the docstrings, and its signatures have no bodies. */
const GENERATED = "docs/api.md";

export const PAGES = globSync(["*.md", "docs/**/*.md", "examples/**/*.md"], { cwd: ROOT }).sort();

/** A folder for the project. It is removed when the test ends. */
export async function snippetsProject(t: { teardown(end: () => Promise<void>): void }): Promise<string> {
  const project = await realpath(await mkdtemp(path.join(os.tmpdir(), "snippets-")));
  t.teardown(() => rm(project, { recursive: true, force: true }));
  await symlink(path.join(ROOT, "node_modules"), path.join(project, "node_modules"));
  const paths = {
    [SELF]: [`${ROOT}src/index.ts`],
    [`${SELF}/testing`]: [`${ROOT}src/testing.ts`],
    [`${SELF}/ui`]: [`${ROOT}src/ui/ui.ts`],
    [`${SELF}/${TASK}`]: [`${ROOT}${TASK}.ts`],
  };
  const settings = {
    extends: `${ROOT}tsconfig.json`,
    compilerOptions: { paths, skipLibCheck: true, declaration: false },
    include: ["**/*.ts"],
    exclude: [],
  };
  await writeFile(path.join(project, "tsconfig.json"), JSON.stringify(settings));
  await writeFile(path.join(project, "package.json"), '{ "type": "module" }');
  return project;
}

/** Writes the blocks of TypeScript and JavaScript of all pages, and returns how many there are. */
export async function writePages(project: string): Promise<number> {
  let written = 0;
  for (const page of PAGES.filter((one) => one !== GENERATED)) {
    const code = (await blocksOf(page)).filter(({ language }) => /^[jt]s$/.test(language));
    if (code.length === 0) continue;
    written += code.length;
    const folder = path.join(project, page.replace(/\W/g, "-"));
    await mkdir(folder);
    const isNamed = ({ text }: { text: string }) => /^\/\/ \S+\.[jt]s$/m.test(text.split("\n")[0] ?? "");
    const named = code
      .filter(isNamed)
      .map(({ text }) => ({ language: "ts", text: text.replace(/^(\/\/ \S+)\.js$/m, "$1.ts") }));
    const own = await writeFiles(folder, named);
    for (const [n, { text }] of code.filter((block) => !isNamed(block)).entries())
      await writeFile(path.join(folder, `snippet-${n}.ts`), `${text}\nexport {};\n`);
    const text = code.map((block) => block.text).join("\n");
    for (const [name, other] of Object.entries(FROM_OTHERS)) {
      if (own.includes(name) || !text.includes(`/${name}"`)) continue;
      const blocks = (await blocksOf(other)).filter((block) => block.text.startsWith(`// ${name}\n`));
      await writeFiles(folder, blocks);
      if (name === "graphile.config.ts" && !own.includes("policies.ts"))
        await writeFiles(
          folder,
          (await blocksOf(other)).filter((block) => block.text.startsWith("// policies.ts\n")),
        );
    }
    await writeFile(path.join(folder, "session.ts"), SESSION);
  }
  return written;
}

/** Writes each example of a docstring as a module. */
export async function writeExamples(project: string): Promise<readonly Example[]> {
  const folder = path.join(project, "api");
  await mkdir(folder);
  await writeFile(path.join(project, "globals.d.ts"), globals());
  const examples: Example[] = [];
  for (const { title, owner, said, members } of ITEMS) {
    const all = [
      ...said.examples,
      // that of an option is a part of a policy's
      ...members.flatMap((member) => member.said.examples.map((code) => inPolicy(code))),
    ];
    for (const [n, code] of all.entries()) {
      const file = path.join(folder, `${title.replace(/\W/g, "-")}-${owner ?? "export"}-${n}.ts`);
      await writeFile(file, `${OWN[title] ?? ""}\n${code}\nexport {};\n`);
      examples.push({ title, owner, file });
    }
  }
  return examples;
}

function inPolicy(code: string): string {
  return /^\w+:/.test(code) ? `definePolicy("report", { partitionBy: "tenant", ${code} });` : code;
}

function globals(): string {
  const exported = Object.entries({ "": index, "/testing": testing, "/ui": ui }).flatMap(([entry, module]) =>
    Object.keys(module).map((name) => [name, `typeof import("${SELF}${entry}").${name}`] as const),
  );
  const gates = GATES.map((name) => [name, `Gates["${name}"]`] as const);
  const all = Object.entries({ ...Object.fromEntries(exported), ...WORLD, ...Object.fromEntries(gates) });
  return `type Fetch = { endpointId: string; accountId: string };
type PolicyOptions = import("${SELF}").PolicyOptions<string, undefined, ${CONTEXT}>;
type Gates = Parameters<Extract<PolicyOptions["gates"], (...all: never[]) => unknown>>[0];
${all.map(([name, type]) => `declare const ${name}: ${type};`).join("\n")}
`;
}

/** What the compiler finds in the project. */
export async function compiled(project: string): Promise<readonly string[]> {
  const tsc = path.join(ROOT, "node_modules/typescript/bin/tsc");
  const checked = promisify(execFile)(process.execPath, [tsc, "-p", "."], { cwd: project });
  const { stdout } = await checked.catch((error: { stdout: string }) => error);
  return stdout.split("\n").filter((line) => line.includes("error TS"));
}

export const textOf = (page: string): string => readFileSync(path.join(ROOT, page), "utf8");
