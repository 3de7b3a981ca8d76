// The package as users get it: packed, installed in a project of its own, type-checked, and running a job.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { testDatabase } from "../helpers/database.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const FIXTURE = fileURLToPath(new URL("../fixtures/scratch-project/", import.meta.url));
const MINUTE = 60_000;

test("a project that installs the package type-checks, runs a job under a policy, ticks from a task folder, and tests without PGlite", async (t) => {
  t.timeout(4 * MINUTE);
  const { url } = await testDatabase(t, { migrated: false });
  const project = await mkdtemp(path.join(os.tmpdir(), "scratch-project-"));
  t.teardown(() => rm(project, { recursive: true, force: true }));

  const tarball = await pack(project);
  await makeProject(project, tarball);
  await npm(project, ["install", "--prefer-offline", "--no-package-lock", "--ignore-scripts"]);

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

/** The tarball's path. Packing builds first. */
async function pack(folder: string): Promise<string> {
  const stdout = await npm(ROOT, ["pack", "--json", "--pack-destination", folder]);
  const [packed] = JSON.parse(stdout) as [{ filename: string }];
  return path.join(folder, packed.filename);
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
