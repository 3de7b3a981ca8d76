// The programs that a visitor starts say a mistake in a sentence, and no stack trace.
import { execFile } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { listen, PortTaken } from "../../scripts/listen.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const DEMO = "examples/demo/main.ts";
const SITE = "scripts/site.ts";

async function run(program: string, ...args: string[]) {
  const ended = await promisify(execFile)(process.execPath, [program, ...args], { cwd: ROOT }).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code: code as number, stdout: `${stdout}`, stderr: `${stderr}` }),
  );
  return { ...ended, lines: ended.stderr.trim().split("\n") };
}

for (const [program, known] of [
  [DEMO, "./scripts/demo --ui"],
  [SITE, "npm run site -- --serve"],
] as const) {
  test(`${program}: --help has the options`, async (t) => {
    const { code, stdout } = await run(program, "--help");
    t.is(code, 0);
    t.true(stdout.includes(known), stdout);
  });

  test(`${program}: an unknown option is named, with the known ones`, async (t) => {
    const { code, lines, stdout } = await run(program, "--iu");
    t.is(code, 2);
    t.is(stdout, "");
    t.is(lines[0], "Unknown option '--iu'.");
    t.true(lines.slice(1).join("\n").includes(known));
    t.is(lines.length, 3);
  });

  test(`${program}: a port that is none is named, also behind npm's "--"`, async (t) => {
    const { code, stderr } = await run(program, "--", "--port", "web");
    t.is(code, 2);
    t.is(stderr, '--port "web": expected a whole number from 0 to 65535.\n');
  });
}

test("the demo refuses a storm that would not end", async (t) => {
  const { code, stderr } = await run(DEMO, "--endpoints", "0");
  t.is(code, 2);
  t.is(stderr, '--endpoints "0": expected a whole number from 1 to 1000.\n');
});

test("the demo refuses what its page would not heed", async (t) => {
  const { code, stderr } = await run(DEMO, "--ui", "--loudest", "9");
  t.is(code, 2);
  t.is(stderr, "--endpoints and --loudest are not for --ui: its page has a form for storms.\n");
});

test("a port that is taken is named, with the way out", async (t) => {
  const first = http.createServer();
  t.teardown(() => first.close());
  await once(first.listen(0, "127.0.0.1"), "listening");
  const { port } = first.address() as AddressInfo;
  await t.throwsAsync(() => listen(http.createServer(), port), {
    instanceOf: PortTaken,
    message: `Port ${port} is taken. Name another one with --port, or 0 for any that is free.`,
  });
});
