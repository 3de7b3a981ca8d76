// examples/prisma, where `npm run test:prisma` has installed Prisma.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { testDatabase } from "../helpers/database.ts";
import { copyOut, runScript } from "../helpers/example-project.ts";
import { PRISMA } from "../helpers/examples.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const MODULES = path.join(PRISMA, "node_modules");
const installed = existsSync(path.join(PRISMA, "generated/client.ts")) ? test : test.skip;

/** A copy that finds Prisma's packages in its own folder, and the repository's in the one above. */
async function project(t: ExecutionContext): Promise<string> {
  const above = await mkdtemp(path.join(os.tmpdir(), "example-"));
  t.teardown(() => rm(above, { recursive: true, force: true }));
  const folder = path.join(above, "prisma");
  await rename(await copyOut(t, "prisma"), folder);
  await rename(path.join(folder, "node_modules"), path.join(above, "node_modules"));
  await symlink(MODULES, path.join(folder, "node_modules"));
  return folder;
}

installed(
  "examples/prisma commits a sign-up and its job together, or neither, and its types are right",
  async (t) => {
    t.timeout(180_000);
    const { url } = await testDatabase(t, { migrated: false });
    const folder = await project(t);
    // To generate a client needs no schema engine, but Prisma downloads one unless a file is named. Any file does.
    const env = { DATABASE_URL: url, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath };
    t.is(await runScript(folder, "start", env), "committed 1 sign-up, 1 job\nrolled back 0 sign-up, 0 job\n");

    const options = {
      skipLibCheck: true,
      paths: { "graphile-worker-dispatch-policy": [`${ROOT}src/index.ts`] },
    };
    const config = {
      extends: `${ROOT}tsconfig.json`,
      compilerOptions: options,
      include: ["*.ts"],
      exclude: [],
    };
    await writeFile(path.join(folder, "tsconfig.json"), JSON.stringify(config));
    for (const compiler of ["typescript", "ts59"]) {
      const tsc = path.join(ROOT, "node_modules", compiler, "bin/tsc");
      await t.notThrowsAsync(promisify(execFile)(process.execPath, [tsc, "-p", folder]), compiler);
    }
  },
);
