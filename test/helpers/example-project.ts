// A project of examples/, copied out as a user would copy it.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdtemp, readFile, rm, symlink } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const EXAMPLES = path.join(ROOT, "examples");
const HOOK = pathToFileURL(path.join(ROOT, "scripts/from-sources.ts")).href;

/** A copy outside of the repository, where the packages of the repository are installed. It goes when the test ends. */
export async function copyOut(
  t: { teardown(end: () => Promise<void>): void },
  name: string,
): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), `example-${name}-`));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  await cp(path.join(EXAMPLES, name), folder, { recursive: true });
  await symlink(path.join(ROOT, "node_modules"), path.join(folder, "node_modules"));
  return folder;
}

/**
 * Runs a script of the project's package.json, after the one that npm runs before it. The package's name means its sources.
 * Resolves to what it printed.
 */
export async function runScript(folder: string, script: string, env: NodeJS.ProcessEnv): Promise<string> {
  const { scripts } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
  const before = scripts[`pre${script}`] as string | undefined;
  if (before) await runCommand(folder, before, env);
  return await runCommand(folder, scripts[script], env);
}

async function runCommand(folder: string, command: string, env: NodeJS.ProcessEnv): Promise<string> {
  const [program = "", ...args] = command.split(" ");
  const installed = path.join(folder, "node_modules/.bin", program);
  const runnable = program === "node" ? process.execPath : existsSync(installed) ? installed : program;
  const NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ""} --import=${HOOK}`;
  const running = promisify(execFile)(runnable, args, {
    cwd: folder,
    env: { ...process.env, ...env, NODE_OPTIONS },
    timeout: 90_000,
  });
  const { stdout, stderr } = await running.catch((error: Error & { stdout: string; stderr: string }) => {
    throw new Error(`${error.message}\n${error.stdout}\n${error.stderr}`);
  });
  // readers copy the configuration, and would get the warning as well
  const warning = /^WARNING: .*/m.exec(stderr)?.[0];
  if (warning) throw new Error(`${command} warns: ${warning}`);
  return stdout;
}
