// scripts/run-tests.ts over a small project of its own: files that fail once, that fail always, and that die.
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PASSES = `test("passes", (t) => t.pass()); test.skip("is skipped", (t) => t.pass());`;
/** Fails, or dies, only in the first run. */
const ONCE = (how: string) =>
  `test("is flaky", (t) => { if (!existsSync("been")) { writeFileSync("been", ""); ${how} } t.pass(); });`;

/** Runs these test files, and returns what was printed and the exit code. */
function run(t: ExecutionContext, files: Record<string, string>, ...args: string[]) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "run-tests-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  for (const link of ["scripts", "node_modules"]) symlinkSync(path.join(ROOT, link), path.join(folder, link));
  writeFileSync(path.join(folder, "package.json"), '{"type": "module"}');
  const config = { files: ["test/**/*.test.ts"], extensions: ["ts"], workerThreads: false };
  writeFileSync(path.join(folder, "ava.config.js"), `export default ${JSON.stringify(config)}`);
  for (const [name, body] of Object.entries(files)) {
    const file = path.join(folder, "test", `${name}.test.ts`);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(
      file,
      `import { existsSync, readFileSync, writeFileSync } from "node:fs"; import test from "ava"; ${body}`,
    );
  }
  const env = { ...process.env, NODE_OPTIONS: "", TEST_TURN: "7" };
  return new Promise<{ code: unknown; last: string[] }>((resolve) =>
    execFile(process.execPath, ["scripts/run-tests.ts", ...args], { cwd: folder, env }, (error, stdout) => {
      const lines = stdout.trimEnd().split("\n");
      resolve({
        code: error?.code ?? 0,
        last: lines.slice(lines.findLastIndex((one) => /^(ok|not ok|#|1\.)/.test(one)) + 1),
      });
    }),
  );
}

const failing = (last: readonly string[]) =>
  last.filter((line) => /^(FAILED|FLAKY): |^\d+ passed/.test(line));

test("a run whose tests pass is green", async (t) => {
  const { code, last } = await run(t, { "a/one": PASSES, "b/two": PASSES });
  t.deepEqual([code, failing(last)], [0, ["2 passed, 0 failed, 2 skipped"]]);
});

test("a file that fails once and then passes leaves the run green, and is named", async (t) => {
  const { code, last } = await run(t, { "a/one": PASSES, "b/two": ONCE('t.fail("by chance");') });
  t.is(code, 0);
  t.deepEqual(failing(last), ["FLAKY: test/b/two.test.ts › is flaky", "2 passed, 0 failed, 1 skipped"]);
});

test("a file that fails twice fails the run", async (t) => {
  const { code, last } = await run(t, { "a/one": PASSES, "b/two": `test("fails", (t) => t.fail());` });
  t.is(code, 1);
  t.deepEqual(failing(last), ["FAILED: test/b/two.test.ts › fails", "1 passed, 1 failed, 1 skipped"]);
});

test("a file whose process dies does not end the others", async (t) => {
  const dies = ONCE('process.kill(process.pid, "SIGTRAP"); return;');
  const { code, last } = await run(t, { "a/one": PASSES, "b/two": dies, "c/three": PASSES });
  t.is(code, 0);
  t.deepEqual(failing(last), [
    "FLAKY: test/b/two.test.ts › exited due to SIGTRAP",
    "3 passed, 0 failed, 2 skipped",
  ]);
});

test("a file that throws before its tests is run again", async (t) => {
  const throws = 'if (!existsSync("been")) { writeFileSync("been", ""); throw new Error("by chance"); }';
  const { code, last } = await run(t, { "a/one": PASSES, "b/two": `${throws} ${PASSES}` });
  t.is(code, 0);
  t.regex(failing(last)[0] ?? "", /^FLAKY: test\/b\/two\.test\.ts › exited with a non-zero exit code: 1$/);
  t.is(failing(last)[1], "2 passed, 0 failed, 2 skipped");
});

test("a run whose AVA dies keeps what it had, says where, and is red", async (t) => {
  const kills = `test("waits", async (t) => { const { until } = await import("${ROOT}test/helpers/until.ts");
    await until("the other file has passed", () => existsSync("passed"));
    await until("its process has ended, so AVA has heard of it", () => { try { process.kill(Number(readFileSync("passed", "utf8")), 0); } catch { return true; } });
    process.kill(process.ppid, "SIGKILL"); await new Promise(() => {}); });`;
  const passes = `test("passes", (t) => t.pass()); test.after(() => writeFileSync("passed", String(process.pid)));`;
  const { code, last } = await run(t, { "a/one": passes, "b/two": kills });
  t.is(code, 1);
  t.regex(last.join("\n"), /The run was cut off \(137\), after: a › one › passes/);
  t.deepEqual(failing(last), ["FAILED: test/b/two.test.ts › (did not run)", "1 passed, 1 failed, 0 skipped"]);
});

test("no test at all is red", async (t) => {
  const { code } = await run(t, { "a/one": PASSES }, "test/none.test.ts");
  t.is(code, 1);
});
