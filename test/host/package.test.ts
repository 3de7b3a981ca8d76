// The package as users get it: its contents; and installed in a project of its own, type-checked, and running a job.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import test from "ava";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { testDatabase } from "../helpers/database.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const FIXTURE = fileURLToPath(new URL("../fixtures/scratch-project/", import.meta.url));
const MINUTE = 60_000;
/** Imports from each entry point, and lets a wrong type of one be an error. */
const USES = `import { definePolicy, type Policy } from "graphile-worker-dispatch-policy";
import { virtualClock } from "graphile-worker-dispatch-policy/testing";
import { createUi } from "graphile-worker-dispatch-policy/ui";
import tick from "graphile-worker-dispatch-policy/tasks/dispatch_policy_tick";
const policy = definePolicy("greet", { partitionBy: "name" });
export const name: string = policy.identifier;
// @ts-expect-error it is no number, and would be if types were missing
export const wrong: number = policy.identifier;
export const others: [typeof virtualClock, typeof createUi, typeof tick] = [virtualClock, createUi, tick];
export const none: Policy | undefined = undefined;
`;

/** What the tests share: packing builds, and a project is installed once. */
let tarball: string;
let files: ReadonlySet<string>;
let unpackedSize: number;
let project: string;

test.before(async (t) => {
  t.timeout(4 * MINUTE);
  project = await mkdtemp(path.join(os.tmpdir(), "scratch-project-"));
  ({ tarball, files, unpackedSize } = await pack(project));
  await makeProject(project, tarball);
  await npm(project, ["install", "--prefer-offline", "--no-package-lock", "--ignore-scripts"]);
});

test.after.always(() => rm(project, { recursive: true, force: true }));

test("a project that installs the package type-checks, runs a job under a policy, ticks from a task folder, and tests without PGlite", async (t) => {
  t.timeout(4 * MINUTE);
  const { url } = await testDatabase(t, { migrated: false });

  t.false(existsSync(path.join(project, "node_modules/@opentelemetry")), "an optional peer is not installed");
  await t.notThrowsAsync(command(project, "node", ["node_modules/typescript/bin/tsc", "-p", "."]));
  const stdout = await command(project, "node", ["main.ts"], { DATABASE_URL: url });
  t.is(stdout.trim().split("\n").at(-1), "ran");
  t.true(stdout.includes('greeted {"payload":{"name":"Ana"},"partition":"Ana"}'), stdout);
  const ticked = await command(project, "node", ["tick-only.ts"], { DATABASE_URL: url });
  t.is(ticked.trim().split("\n").at(-1), '[{"staged":0,"inFlight":1}]', ticked);
  const tested = await command(project, "node", ["testing.ts"], { DATABASE_URL: url });
  t.is(tested.trim().split("\n").at(-1), '{"installed":false,"admitted":1}', tested);
  // each command is a module of its own, read when it is called, and this one reads another one later
  const bin = "node_modules/.bin/graphile-worker-dispatch-policy";
  t.regex(await command(project, bin, ["uninstall", "--yes"], { DATABASE_URL: url }), /^Dropped /m);
  t.deepEqual(await importsOfSources(path.join(project, "node_modules/graphile-worker-dispatch-policy")), []);
});

test("it has what a user needs, and nothing else", (t) => {
  const roots = new Set([...files].map((file) => file.split("/")[0] as string));
  t.deepEqual([...roots].sort(), [
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "dist",
    "docs",
    "llms.txt",
    "package.json",
    "sql",
    "src",
  ]);
  const kinds = {
    dist: /\.(js|d\.ts)$/,
    docs: /^docs\/[^/]+\.md$/,
    sql: /\.sql$/,
    src: /^src\/ui\/assets\//,
  };
  for (const [root, kind] of Object.entries(kinds))
    t.deepEqual(
      [...files].filter((file) => file.startsWith(`${root}/`) && !kind.test(file)),
      [],
    );
  t.deepEqual(
    [...files].filter((file) => /\.test\.|^docs\/(api|benchmarks|engine)\.md$/.test(file)),
    [],
  );
});

test("it is at most 900 files and 2.8 MB", (t) => {
  t.log(`${files.size} files, ${unpackedSize} bytes`);
  t.true(files.size <= 900);
  t.true(unpackedSize <= 2_800_000);
});

test("the README installs what there is: the tarball by its name, until the package is published", async (t) => {
  const readme = await readFile(path.join(ROOT, "README.md"), "utf8");
  const isPublished = !readme.includes("not published yet"); // scripts/release asks for that
  const line = isPublished
    ? "npm install graphile-worker-dispatch-policy zod"
    : `npm install /path/to/checkout/${path.basename(tarball)} zod`;
  t.true(readme.includes(`\`${line}\``), line);
});

test("it has each page that its code names", async (t) => {
  const sources = [...files].filter((file) => /^dist\/.*\.js$/.test(file));
  const texts = await Promise.all(sources.map((file) => readFile(path.join(ROOT, file), "utf8")));
  const named = new Set(texts.flatMap((text) => text.match(/\bdocs\/[a-z-]+\.md\b/g) ?? []));
  t.true(named.size >= 3, [...named].join());
  t.deepEqual(
    [...named].filter((page) => !files.has(page)),
    [],
  );
});

test("publint finds nothing to improve", async (t) => {
  const { buffer } = new Uint8Array(await readFile(tarball));
  const { messages, pkg } = await publint({ pack: { tarball: buffer }, strict: true });
  t.deepEqual(
    messages.map((message) => formatMessage(message, pkg)),
    [],
  );
});

test("Are the types wrong? Only for resolutions that docs/production.md excludes", async (t) => {
  const checked = await checkPackage(createPackageFromTarballData(new Uint8Array(await readFile(tarball))));
  if (!checked.types) return t.fail("it has no types");
  const found = checked.problems.map((problem) =>
    "resolutionKind" in problem ? `${problem.kind} ${problem.resolutionKind}` : problem.kind,
  );
  t.deepEqual([...new Set(found)].sort(), [
    "CJSResolvesToESM node16-cjs", // TypeScript's rule for "node16": Node itself loads ES modules by require
    "NoResolution node10", // which does not read `exports`, and which TypeScript 7 does not have
  ]);
});

test("CommonJS loads it by require", async (t) => {
  const program = `console.log(typeof require("graphile-worker-dispatch-policy").definePolicy,
    typeof require("graphile-worker-dispatch-policy/testing").virtualClock,
    typeof require("graphile-worker-dispatch-policy/ui").createUi,
    typeof require("graphile-worker-dispatch-policy/tasks/dispatch_policy_tick").default)`;
  const stdout = await command(project, "node", ["--input-type=commonjs", "-e", program]);
  t.is(stdout.trim(), "function function function function");
});

test("TypeScript finds the types with the settings that docs/production.md names", async (t) => {
  t.timeout(4 * MINUTE);
  const cases = [
    ["uses.cts", { module: "node20" }],
    ["uses.cts", { module: "nodenext" }],
    ["uses.mts", { module: "node18" }],
    ["uses.ts", { module: "preserve" }],
    ["uses.ts", { module: "esnext", moduleResolution: "bundler" }],
    ["uses.cts", { module: "node18" }, "TS1479"],
    ["uses.ts", { module: "commonjs", moduleResolution: "node10" }, "TS2307"],
  ] as const;
  const folders = await Promise.all(cases.map(([file, settings]) => settingsProject(file, settings)));
  // all in one process, which reads the libraries once
  const tsc = path.join(ROOT, "node_modules/ts59/bin/tsc");
  const said = await command(project, "node", [tsc, "-b", ...folders]).catch(String);
  for (const [n, [file, settings, error]] of cases.entries()) {
    const lines = said.split("\n").filter((line) => line.includes(`${path.basename(folders[n]!)}/`));
    const expected = error ? new RegExp(`error ${error}: `) : /^$/;
    t.regex(lines.join("\n"), expected, `${file} with ${JSON.stringify(settings)}`);
  }
});

/** `USES` under a name and settings. The fixture's own settings check the libraries; these need not do it again. */
async function settingsProject(file: string, settings: object): Promise<string> {
  const folder = await mkdtemp(path.join(project, "settings-"));
  const compilerOptions = {
    ...{ target: "es2024", types: ["node"], strict: true, noEmit: true, skipLibCheck: true },
    ...settings,
  };
  await writeFile(path.join(folder, file), USES);
  await writeFile(path.join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: [file] }));
  return folder;
}

interface Packed {
  readonly tarball: string;
  readonly files: ReadonlySet<string>;
  /** In bytes. */
  readonly unpackedSize: number;
}

/** Packing builds first. */
async function pack(folder: string): Promise<Packed> {
  const stdout = await npm(ROOT, ["pack", "--json", "--pack-destination", folder]);
  const [packed] = JSON.parse(stdout) as [
    { filename: string; files: { path: string }[]; unpackedSize: number },
  ];
  return {
    tarball: path.join(folder, packed.filename),
    files: new Set(packed.files.map((file) => file.path)),
    unpackedSize: packed.unpackedSize,
  };
}

/** Of compiled files that import what only the repository has: an older compiler left a path of import() as it was. */
async function importsOfSources(folder: string): Promise<string[]> {
  const files = (await readdir(path.join(folder, "dist"), { recursive: true })).filter((file) =>
    file.endsWith(".js"),
  );
  const texts = await Promise.all(files.map((file) => readFile(path.join(folder, "dist", file), "utf8")));
  return files.filter((_, place) => /(?:from |import\()"\.[^"]*\.ts"/.test(texts[place]!));
}

async function makeProject(folder: string, tarball: string): Promise<void> {
  const { devDependencies } = JSON.parse(await readFile(path.join(ROOT, "package.json"), "utf8"));
  const same = (name: string) => [name, devDependencies[name]];
  const dependencies = {
    "graphile-worker-dispatch-policy": `file:${tarball}`,
    pg: "^8.0.0",
    ...Object.fromEntries(["graphile-worker", "typescript", "@types/node", "@types/pg"].map(same)),
  };
  await cp(FIXTURE, folder, { recursive: true });
  const manifest = { name: "scratch-project", private: true, type: "module", dependencies };
  await writeFile(path.join(folder, "package.json"), JSON.stringify(manifest));
}

function npm(cwd: string, args: string[]): Promise<string> {
  const patience = ["--fetch-timeout=15000", "--fetch-retries=5", "--fetch-retry-mintimeout=500"];
  return command(cwd, "npm", [...args, ...patience, "--no-audit", "--no-fund", "--loglevel=error"]);
}

/** Resolves to what the program printed; rejects with everything it said if it fails. */
async function command(cwd: string, program: string, args: string[], env: NodeJS.ProcessEnv = {}) {
  const options = { cwd, env: { ...process.env, ...env }, timeout: 2 * MINUTE };
  try {
    return (await promisify(execFile)(program, args, options)).stdout;
  } catch (error) {
    const { message, stdout } = error as Error & { stdout?: string };
    throw new Error(`${message}\n${stdout}`, { cause: error });
  }
}
