/**
 * Checks the types of each project with both supported compilers, as many at a time as there are processors, and prints what
 * they find: `npm run typecheck`.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { text } from "node:stream/consumers";

/** The slowest first. */
const COMPILERS = ["node_modules/ts59/bin/tsc", "node_modules/typescript/bin/tsc"];
const EXAMPLES = ["test/examples/tsconfig.nestjs.json", "test/examples/tsconfig.nextjs.json"];
const PROJECTS = ["tsconfig.json", "test/drivers", "test/testing", "site", ...EXAMPLES];

const checks = COMPILERS.flatMap((compiler) => PROJECTS.map((project) => [compiler, "-p", project]));
await Promise.all(Array.from({ length: os.availableParallelism() }, work));

async function work(): Promise<void> {
  for (let check = checks.shift(); check; check = checks.shift()) {
    const child = spawn(process.execPath, check, { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(child, "close") as Promise<[number | null]>;
    const said = await text(child.stdout);
    const [code] = await ended;
    if (code === 0) continue;
    console.log(`# ${check.join(" ")}\n${said}`);
    process.exitCode = 1;
  }
}
