// The playground: its policies, what stands in for Node's modules, and whole runs in
// Chromium and Firefox beside those of a server.
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import type { WithPgClient } from "graphile-worker";
import type { Browser, Page } from "playwright-core";
import ts from "ts59";
import { z } from "zod";
import { createHash as inBrowsers } from "../../site/browser/crypto.ts";
import { buildSite, ENTRIES } from "../../site/build/build.ts";
import { writeModules } from "../../site/build/modules.ts";
import { serve } from "../../site/build/serve.ts";
import { BEGIN, type Said } from "../../site/playground/messages.ts";
import { payloadOf, policiesOf, policyNameOf, textOf } from "../../site/playground/policy.ts";
import { PRESETS, type Preset } from "../../site/playground/presets.ts";
import { readSetup, tenantsOf } from "../../site/playground/setup.ts";
import { type Ran, simulate } from "../../site/playground/simulation.ts";
import * as own from "../../src/index.ts";
import { type AnyPolicy, policyDefinition, resolveJob } from "../../src/policy/policy.ts";
import { makeRegistry } from "../../src/policy/registry.ts";
import { atLength, type Register } from "../helpers/at-length.ts";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";
import { beside, findChromium, findings, launch } from "../ui/browser.ts";
import { findFirefox, openInFirefox } from "./firefox.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

test("the hash for browsers is Node's, for texts of all lengths around a block", (t) => {
  for (const length of [0, 1, 3, 55, 56, 63, 64, 65, 119, 120, 1000]) {
    const text = `é${"x".repeat(length)}`;
    t.is(inBrowsers("sha256").update(text).digest("hex"), createHash("sha256").update(text).digest("hex"));
  }
});

/** The files of a text, which begin with their names. */
function filesOf(text: string): Map<string, string> {
  const parts = text.split(/^\/\/ (\S+\.ts)$/m).slice(1);
  return new Map(parts.flatMap((part, n) => (n % 2 === 0 ? [[part, parts[n + 1] ?? ""] as const] : [])));
}

/** The policies that the copied text declares, in their order. */
function declared(text: string): readonly AnyPolicy[] {
  const file = (filesOf(text).get("policies.ts") ?? "").replace(/^import .*$/gm, "");
  const body = ts.transpile(file.replace(/^export /gm, ""), { target: ts.ScriptTarget.ES2024 });
  const names = [...file.matchAll(/^export const (\w+)/gm)].map(([, name]) => name);
  const given = { ...own, z };
  return new Function(...Object.keys(given), `${body}return [${names}];`)(...Object.values(given));
}

for (const { id, setup } of PRESETS)
  test(`${id}: the text that a visitor copies declares the policy that runs`, (t) => {
    const [copied, ran] = [declared(textOf(setup)), policiesOf(setup)];
    const plain = (policies: readonly AnyPolicy[]) =>
      makeRegistry(policies).policies.map((policy) => {
        const { name, gates, weight, classShare, shard, partitionPaths, cancelsAfterSeconds } =
          policyDefinition(policy);
        return { name, gates, weight, classShare, shard, partitionPaths, cancelsAfterSeconds };
      });
    t.deepEqual(plain(copied), plain(ran));
    for (const [tenant, name] of tenantsOf(setup).entries()) {
      const task = policyNameOf(setup, tenant);
      const resolved = (policies: readonly AnyPolicy[]) => {
        const policy = policies.find(({ identifier }) => identifier === task) as AnyPolicy;
        return { ...resolveJob(policy, payloadOf(setup, tenant, name), { task }), context: null };
      };
      t.deepEqual(resolved(copied), resolved(ran));
    }
  });

test("each file of the text that a visitor copies imports the names that it uses", (t) => {
  const names = [
    "definePolicy",
    "shared",
    "exponential",
    "RetryAfter",
    "makePolicyUtils",
    "callPartner",
    "preset",
    "z",
  ];
  for (const { id, setup } of PRESETS)
    for (const [file, text] of filesOf(textOf(setup))) {
      const imports = (text.match(/^import .*$/gm) ?? []).join("\n");
      const body = text.replace(/^import .*$/gm, "");
      for (const name of names) {
        const uses = new RegExp(`(?<!const |["./])\\b${name}\\b(?!:)`);
        t.is(uses.test(imports), uses.test(body), `${id}, ${file}: ${name}`);
      }
    }
  const files = Object.fromEntries(PRESETS.map(({ id, setup }) => [id, [...filesOf(textOf(setup)).keys()]]));
  t.deepEqual(files.night, ["policies.ts", "night-tariff.ts"]);
  t.deepEqual(files.hold, ["policies.ts", "tasks/call_partner.ts"]);
});

test("a setup that came from an address stays within the sliders", (t) => {
  const { tenants, rate, scope, jobs } = readSetup({
    tenants: "1000",
    rate: "x",
    scope: "toString",
    jobs: "83",
  });
  t.deepEqual({ tenants, rate, scope, jobs }, { tenants: 8, rate: 0, scope: "tenant", jobs: 80 });
});

test("the page and its worker import nothing that browsers lack", async (t) => {
  const out = await mkdtemp(path.join(os.tmpdir(), "modules-"));
  t.teardown(() => rm(out, { recursive: true, force: true }));
  const names = writeModules(ROOT, ENTRIES, out);
  t.true(names.includes("src/admit/tick.ts"));
  t.false(names.some((name) => /^src\/(host|pool|run|ui|cli)\//.test(name)));
});

test("a module that imports what browsers lack fails the build, which names both", async (t) => {
  const root = await mkdtemp(path.join(os.tmpdir(), "root-"));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  await writeFile(path.join(root, "one.ts"), 'import { a } from "./two.ts";\nconsole.log(a);\n');
  await writeFile(path.join(root, "two.ts"), 'import fs from "node:fs";\nexport const a = fs;\n');
  t.throws(() => writeModules(root, ["one.ts"], path.join(root, "out")), {
    message: /^two\.ts imports "node:fs", which browsers lack/,
  });
});

test("so does one that imports what the stand-in of a module lacks", async (t) => {
  const root = await mkdtemp(path.join(os.tmpdir(), "root-"));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  await mkdir(path.join(root, "site/browser"), { recursive: true });
  await writeFile(path.join(root, "site/browser/os.ts"), "export const hostname = () => '';\n");
  await writeFile(
    path.join(root, "one.ts"),
    'import { hostname, uptime } from "node:os";\nhostname(uptime());\n',
  );
  t.throws(() => writeModules(root, ["one.ts"], path.join(root, "out")), {
    message: /^one\.ts imports uptime, and site\/browser\/os\.ts, which stands in for browsers, lacks it/,
  });
});

const program = findChromium();
const firefox = findFirefox();
let browser: Browser | undefined;
let served: Awaited<ReturnType<typeof serve>> | undefined;
let folder: string | undefined;

/** Each builds the site and starts PostgreSQL in a browser: fifteen seconds of a processor. */
const inChromium: Register = program ? atLength : test.serial.skip;
const inFirefox: Register = firefox ? atLength : test.serial.skip;

test.after.always(async () => {
  await browser?.close();
  served?.server.close();
  served?.server.closeAllConnections();
  if (folder !== undefined) await rm(folder, { recursive: true, force: true });
});

/** Builds and serves the site, once for all tests. Resolves to its address. */
async function originOfSite(): Promise<string> {
  if (served === undefined) {
    folder = await mkdtemp(path.join(os.tmpdir(), "site-"));
    await buildSite(ROOT, folder);
    served = await serve(folder, 0);
  }
  return served.origin;
}

/** Opens the playground in Chromium. `requests` and `messages` are those of the page and its worker. */
async function openPlayground(t: ExecutionContext, hash = "") {
  t.timeout(600_000);
  const base = await originOfSite();
  browser ??= await launch(program as string);
  const context = await browser.newContext();
  t.teardown(() => context.close());
  const requests: string[] = [];
  const messages: string[] = [];
  context.on("request", (request) => requests.push(request.url()));
  context.on("console", (message) => messages.push(message.text()));
  const page = await context.newPage();
  page.on("pageerror", (error) => messages.push(String(error)));
  await page.addInitScript(RECORD);
  await page.goto(`${base}/playground.html${hash}`);
  return { page, base, requests, messages };
}

/** Keeps what the worker says, which the page only draws. */
const RECORD = `{
  const Real = Worker;
  window.said = [];
  window.Worker = class extends Real {
    constructor(...args) {
      super(...args);
      window.said = [];
      this.addEventListener("message", ({ data }) => window.said.push(data));
    }
  };
}`;

async function ranIn(page: {
  evaluate(expression: string): Promise<unknown>;
}): Promise<Pick<Ran, "starts" | "ends" | "frames">> {
  const said = (await page.evaluate("said")) as Said[];
  const frames = said.flatMap((one) => (one.says === "frame" ? [one.frame] : []));
  return { frames, starts: frames.flatMap(({ starts }) => starts), ends: frames.flatMap(({ ends }) => ends) };
}

async function untilRan(page: Page): Promise<string> {
  const status = page.locator("#status");
  await status.filter({ hasText: /starts in|failed/ }).waitFor({ timeout: 300_000 });
  return (await status.textContent()) ?? "";
}

/** The same setup on the test's PostgreSQL server, by the times that the run gives and not by the server's clock. */
async function ranOnServer(t: ExecutionContext, { setup }: Preset): Promise<Ran> {
  const { pool } = await testDatabase(t);
  const client = await pool.connect();
  try {
    const withPgClient = (callback: (it: never) => unknown) => callback(client as never);
    return await simulate(setup, {
      withPgClient: Object.assign(withPgClient, { withRetries: withPgClient }) as WithPgClient,
      begin: BEGIN,
      goTo() {},
      explains: false,
    });
  } finally {
    client.release();
  }
}

const card = (id: string) => PRESETS.find((preset) => preset.id === id) as Preset;

/** Runs cases in the page, and compares their starts and ends with those of the server. */
async function compare(t: ExecutionContext, page: Page, ids: readonly string[]): Promise<void> {
  for (const [n, id] of ids.entries()) {
    await page.locator(`[data-preset="${id}"]`).click();
    if (n === 0) await page.getByRole("button", { name: "Run", exact: true }).click();
    t.regex(await untilRan(page), /starts in/);
    const [here, there] = [await ranIn(page), await ranOnServer(t, card(id))];
    t.true(here.starts.length > 40, `${here.starts.length}`);
    t.deepEqual(here.starts, there.starts, id);
    t.deepEqual(here.ends, there.ends, id);
    await page.locator("#time").fill("60");
    const started = here.frames.at(-1)?.tenants.map((one) => String(one.started));
    t.deepEqual(await page.locator("#tenants td:nth-child(2)").allTextContents(), started);
  }
}

inChromium(
  "a visitor runs cases, and each start and end is that of a server, to the millisecond",
  async (t) => {
    const { page, base, requests, messages } = await openPlayground(t);
    t.false(
      requests.some((url) => url.includes("/engine/")),
      "nothing of the database before the click",
    );
    await compare(t, page, ["throttle", "hold"]);
    t.true(requests.some((url) => url.includes("/engine/")));
    t.deepEqual(
      requests.filter((url) => !url.startsWith(base) && !url.startsWith("data:")),
      [],
    );
    t.regex((await page.locator("#tenants").textContent()) ?? "", /No job waits/);
    await page.locator("#time").fill("15");
    t.regex((await page.locator("#tenants").textContent()) ?? "", /on hold by the task \(429\) until 16 s/);
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      t.deepEqual(await findings(page), [], colorScheme);
    }
    for (const width of [390, 3840]) {
      await page.setViewportSize({ width, height: 900 });
      t.true((await beside(page)) <= 0, `${width}`); // below 0: the gutter of a scrollbar
    }
    t.deepEqual(messages, []);
  },
);

inChromium("retries, shards, an operator's limit and an adaptive cap go as on a server", async (t) => {
  const { page, messages } = await openPlayground(t, "#retries");
  await compare(t, page, ["retries", "sharding", "night", "adaptive", "slots", "policies", "newest"]);
  t.deepEqual(messages, []);
});

inFirefox("in Firefox as well, each start and end is that of a server", async (t) => {
  t.timeout(600_000);
  const base = await originOfSite();
  const url = `${base}/playground.html`;
  const page = await openInFirefox(t, { program: firefox as string, url });
  // after the page, which makes its worker at the click: a script before it is an error in the log of Firefox 140
  await page.evaluate(`(() => { ${RECORD} return true; })()`);
  t.false(page.requests.some((address) => address.includes("/engine/")));
  await page.click('[data-preset="throttle"]');
  await page.click("#run");
  const status = () => page.evaluate<string>('document.getElementById("status").textContent');
  const isOver = async () => /starts in|failed/.test(await status());
  await until("the run is over", isOver, { withinMs: 300_000, everyMs: 200, seen: status });
  t.regex(await status(), /starts in/);

  const [here, there] = [await ranIn(page), await ranOnServer(t, card("throttle"))];
  t.true(here.starts.length > 40, `${here.starts.length}`);
  t.deepEqual(here.starts, there.starts);
  t.deepEqual(here.ends, there.ends);
  t.deepEqual(
    page.requests.filter((address) => !address.startsWith(base) && !address.startsWith("data:")),
    [],
  );
  t.deepEqual(page.messages, []);
});
