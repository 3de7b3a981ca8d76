// An application that is bundled with this package: it finds the package's files, and takes no others for them.
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { build } from "esbuild";
import { testDatabase } from "../helpers/database.ts";
import { relationOf } from "../helpers/table.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const NAME = "graphile-worker-dispatch-policy";
const run = promisify(execFile);

const MAIN = `import { definePolicy, dispatchPolicyPreset, makePolicyUtils } from ${JSON.stringify(`${ROOT}src/index.ts`)};
import { createUi } from ${JSON.stringify(`${ROOT}src/ui/ui.ts`)};
async function main() {
  const connectionString = process.env.DATABASE_URL;
  const policy = definePolicy("p", { partitionBy: "key" });
  const utils = await makePolicyUtils({ connectionString, policies: [policy] });
  const { partition } = await utils.addJob(policy, { key: "a" });
  await utils.release();
  const preset = { extends: [dispatchPolicyPreset({ policies: [policy] })], worker: { connectionString } };
  const ui = createUi({ preset, authorize: () => ({ name: "ana", role: "operator" }) });
  const types = [];
  for (const name of ["style.css", "live.js", "idiomorph.js"]) {
    const answer = await ui(new Request("http://localhost/assets/" + name));
    const text = await answer.text();
    types.push(text.length > 1000 ? answer.headers.get("content-type") : answer.status + text);
  }
  await ui.release();
  console.log(JSON.stringify({ partition, types }));
}
main().catch((error) => { console.log(JSON.stringify({ error: error.message })); process.exitCode = 1; });
`;

interface Bundle {
  readonly out: "main.mjs" | "main.cjs";
  readonly define?: Record<string, string>;
}

/** How bundlers leave the place of a module to it. */
const MODULE: Bundle = { out: "main.mjs" };
const BUNDLES: Readonly<Record<string, Bundle>> = {
  "esbuild, ES modules": MODULE,
  "esbuild, CommonJS, which has no place": { out: "main.cjs" },
  "the place on the machine that built it, as webpack and ncc write it": {
    out: "main.cjs",
    define: { "import.meta.url": JSON.stringify("file:///the/machine/that/built/it/main.js") },
  },
};

/** An application with migrations of its own, in the folder where this package has its own. */
async function application(t: ExecutionContext, { out, define = {} }: Bundle) {
  const folder = await mkdtemp(path.join(os.tmpdir(), "bundled-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  await mkdir(path.join(folder, "sql/migrations"), { recursive: true });
  await mkdir(path.join(folder, "node_modules"));
  await writeFile(path.join(folder, "package.json"), '{ "name": "application", "version": "0.1.0" }');
  await writeFile(
    path.join(folder, "sql/migrations/000001_application.sql"),
    "create table public.of_the_application ();",
  );
  const format = out === MODULE.out ? "esm" : "cjs";
  const outfile = path.join(folder, "dist", out);
  await build({
    ...{ format, define },
    ...{ stdin: { contents: MAIN, resolveDir: ROOT, loader: "ts" }, bundle: true, platform: "node", outfile },
    // a bundle of ES modules has no require, which CommonJS packages in it call
    ...(format === "esm" && {
      banner: {
        js: 'import { createRequire as required } from "node:module"; const require = required(import.meta.url);',
      },
    }),
    ...{ external: ["pg-native"], logLevel: "silent" },
  });
  const { url, pool } = await testDatabase(t, { migrated: false });
  const start = async () => {
    const env = { ...process.env, DATABASE_URL: url };
    const { stdout } = await run(process.execPath, [outfile], { env }).catch((error) => error);
    return JSON.parse(stdout.trim().split("\n").at(-1));
  };
  const tables = async () => {
    const { rows } = await pool.query(
      "select count(*)::int as n from pg_class where relname in ('of_the_application', $1)",
      [relationOf("arrivals")],
    );
    return rows[0].n;
  };
  return { folder, start, tables };
}

for (const [what, bundle] of Object.entries(BUNDLES)) {
  test(`a bundle finds the package that is installed beside it: ${what}`, async (t) => {
    const { folder, start, tables } = await application(t, bundle);
    await symlink(ROOT, path.join(folder, "node_modules", NAME));
    t.deepEqual(await start(), {
      partition: "a",
      types: ["text/css; charset=utf-8", "text/javascript; charset=utf-8", "text/javascript; charset=utf-8"],
    });
    t.is(await tables(), 1, "its own migrations ran, and not the application's");
  });
}

test("a bundle without its files, or with those of another version, says so and runs no SQL", async (t) => {
  const { folder, start, tables } = await application(t, MODULE);
  const missing =
    /^The files of graphile-worker-dispatch-policy 0\.1\.0 are missing, expected them in node_modules at or /;
  t.regex((await start()).error, missing);
  const other = path.join(folder, "node_modules", NAME);
  await cp(`${ROOT}sql`, path.join(other, "sql"), { recursive: true });
  await writeFile(path.join(other, "package.json"), JSON.stringify({ name: NAME, version: "0.0.9" }));
  t.regex((await start()).error, missing);
  t.is(await tables(), 0);
});
