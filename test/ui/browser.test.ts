// The pages in Chromium: what axe finds, the keyboard alone, no JavaScript, narrow and wide screens, and the refresh.
// Without a Chromium these tests are skipped.
import test, { type ExecutionContext } from "ava";
import type { Page } from "playwright-core";
import { addPolicyJob, definePolicy } from "../../src/index.ts";
import { table } from "../helpers/table.ts";
import {
  beside,
  fill,
  findings,
  focused,
  follow,
  noticed,
  sharedBrowser,
  tab,
  tabTo,
  titled,
} from "./browser.ts";

const { inBrowser, browser } = sharedBrowser(test);

/** A key that has no place to break. */
const LONG = "x".repeat(300);

/** All pages, with something on each. */
async function busyTab(t: ExecutionContext, options: Parameters<typeof tab>[2] = {}) {
  const it = await tab(t, browser(), options);
  const { utils, pool, first } = it;
  const { rows } = await pool.query(
    "select job_id from dispatch_policy.in_flight_jobs where staged_id = $1",
    [first],
  );
  await utils.setLimit({ policy: "send_mail", gate: "all", set: { rate: 1 }, reason: LONG, by: "bo" });
  await utils.addJob("make_report", { tenant: LONG });
  await utils.pause({ policy: "make_report", partition: LONG, reason: LONG, by: "bo" });
  await utils.permanentlyFailJobs([first], `Error: ${LONG}\n    at ${LONG}`);
  await utils.tick();
  await utils.sweep();
  const { paths } = await import("./world.ts");
  const [grouped] = await utils.addJobs([{ identifier: "make_report", payload: { tenant: LONG } }], false, {
    then: { identifier: "send_mail", payload: { to: "ana@example.org" } },
  });
  const { groupId } = grouped as { groupId?: string };
  await table(pool, "groups").set({ error: LONG });
  const undeclared = LONG.slice(0, 128);
  await addPolicyJob(pool, definePolicy(undeclared, { partitionBy: "k" }), { k: "a" });
  const ofLong = ["/partition", "/act/retry"].map((path) => `${path}?policy=make_report&partition=${LONG}`);
  const others = [`/group?group=${groupId}`, `/policy?policy=${undeclared}`];
  return { ...it, paths: [...paths(rows[0].job_id), ...ofLong, ...others] };
}

for (const colorScheme of ["light", "dark"] as const)
  inBrowser(
    `axe finds nothing on any page, in the ${colorScheme} theme, and the console is empty`,
    async (t) => {
      const { page, base, paths, messages } = await busyTab(t, {
        context: { colorScheme },
        environment: "production",
      });
      const found: string[] = [];
      for (const path of paths) {
        await page.goto(base + path);
        found.push(...(await findings(page)).map((one) => `${path}: ${one}`));
      }
      t.deepEqual(found, []);
      t.deepEqual(messages, []);
    },
  );

inBrowser("no page is scrolled sideways, on a telephone or on a wall", async (t) => {
  const { page, base, paths } = await busyTab(t, { environment: LONG.slice(0, 40) });
  const wide: string[] = [];
  for (const width of [390, 3840]) {
    await page.setViewportSize({ width, height: 900 });
    for (const path of paths) {
      await page.goto(base + path);
      const pixels = await beside(page);
      if (pixels > 0) wide.push(`${path}: ${pixels} of ${width}`);
    }
  }
  t.deepEqual(wide, []);
});

inBrowser(
  "a tenant's pages: axe finds nothing, none is scrolled sideways, and the console is empty",
  async (t) => {
    const partitions = { fetch_endpoint: ["ep1", "ep4"], make_report: [LONG] };
    const authorize = () => ({ name: "ida", role: "tenant", partitions }) as const;
    const { page, base, utils, messages } = await busyTab(t, { authorize });
    const { id } = await utils.addJob("fetch_endpoint", { endpoint: "ep1", account: "acme" });
    await utils.tick();
    await page.setViewportSize({ width: 390, height: 900 });
    const wrong: string[] = [];
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      for (const path of [
        ...["/", "/partition?policy=fetch_endpoint&partition=ep1", `/job?id=${id}`],
        `/partition?policy=make_report&partition=${LONG}`,
      ]) {
        await page.goto(base + path);
        wrong.push(...(await findings(page)).map((one) => `${colorScheme} ${path}: ${one}`));
        const pixels = await beside(page);
        if (pixels > 0) wrong.push(`${path}: ${pixels} beside the screen`);
      }
    }
    t.deepEqual(wrong, []);
    t.deepEqual(messages, []);
  },
);

for (const javaScriptEnabled of [true, false])
  inBrowser(
    `by keyboard alone: why a job waits, its limit raised for an hour, and back; JavaScript ${javaScriptEnabled ? "on" : "off"}`,
    async (t) => {
      const { page, base, utils, messages } = await tab(t, browser(), { context: { javaScriptEnabled } });
      await page.goto(`${base}/`);
      await page.waitForLoadState(); // a key that comes before the page's script is lost
      if (javaScriptEnabled) await page.keyboard.press("/");
      else await tabTo(page, "Search");
      t.is(await focused(page), "Search");
      await page.keyboard.type("ep1");
      await page.keyboard.press("Enter");
      await page.waitForURL(/partition=ep1/);
      t.regex(await textOf(page), /waits for gate "concurrency".*2 of 2 are in flight/i);

      await follow(page, "Change limit… of concurrency", "Change limit");
      await fill(page, "Jobs at once", "5");
      await fill(page, "Another length", "1 hour");
      await fill(page, "Reason, for the audit", "incident 12");
      await follow(page, "Change limit", "fetch_endpoint");
      await noticed(page, /^Set the limit of gate concurrency for ep1 to max 5, for 1 h\. By ana · Undo$/);
      const [limit, ...others] = await utils.limits();
      t.like(limit, {
        gate: "concurrency",
        key: "ep1",
        override: { max: 5 },
        by: "ana",
        reason: "incident 12",
      });
      t.deepEqual(others, []);
      t.true(Math.abs(limit!.until!.getTime() - Date.now() - 3_600_000) < 60_000);

      await follow(page, "Undo", "Clear limit");
      t.is(await page.getByLabel("Reason, for the audit").inputValue(), "Undo: incident 12");
      await follow(page, "Clear limit", "fetch_endpoint");
      await noticed(page, /^Ended the limit of gate concurrency for ep1\. By ana · Undo$/);
      t.deepEqual(await utils.limits(), []);
      t.deepEqual(messages, []);
    },
  );

inBrowser("keys lead to places and along rows, and times are told from now on", async (t) => {
  const { page, base, messages } = await tab(t, browser());
  await page.goto(`${base}/policies`);
  await page.waitForLoadState(); // a key that comes before the page's script is lost
  for (const key of ["g", "p"]) await page.keyboard.press(key);
  await page.waitForURL(/\/partitions$/);
  await page.waitForLoadState();
  const links = await page
    .locator("main tbody tr")
    .evaluateAll((rows) => rows.map((row) => row.querySelector("a")?.getAttribute("href")));
  const at = () => page.evaluate("document.activeElement.getAttribute('href')");
  for (const [key, row] of [
    ["j", 0],
    ["j", 1],
    ["k", 0],
    ["k", 0],
  ] as const) {
    await page.keyboard.press(key);
    t.is(await at(), links[row], key);
  }
  await page.goto(`${base}/audit`);
  const time = page.locator("td time").first();
  t.regex((await time.textContent()) ?? "", /^(a moment|\d+ min) ago$/);
  t.is(
    await time.getAttribute("title"),
    `${(await time.getAttribute("datetime"))?.replace("T", " ").slice(0, 19)} UTC`,
  );
  t.deepEqual(messages, []);
});

async function textOf(page: Page): Promise<string> {
  return ((await page.textContent("main")) ?? "").replace(/\s+/g, " ");
}

/** A tab that asks again as often as it can. */
async function refreshing(page: Page, url: string): Promise<void> {
  await page.goto(url);
  await page.getByLabel("Refresh").selectOption("2");
}

inBrowser("? shows the keys, and each does what it says", async (t) => {
  const { page, base, utils, messages } = await tab(t, browser());
  await page.goto(`${base}/partitions`);
  await page.keyboard.press("?");
  const keys = page.getByRole("dialog", { name: "Keys" });
  await keys.waitFor();
  const places = [..."oypjulwah"].map((key) => `g ${key}`);
  t.deepEqual(await keys.locator("kbd").allTextContents(), ["/", "j k", "r", "?", "Esc", ...places]);
  t.deepEqual(await findings(page), []);
  await page.keyboard.press("Escape");
  await keys.waitFor({ state: "hidden" });
  await page.keyboard.press("/");
  await page.keyboard.type("r?/");
  t.is(await page.getByLabel("Search").inputValue(), "r?/");
  await page.locator("h1").click();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("ep");
  t.is(await page.getByLabel("Search").inputValue(), "ep", "what was there is selected");
  t.false(await keys.isVisible());

  await page.goto(`${base}/limits`);
  await page.getByLabel("Refresh").selectOption("0");
  await utils.setLimit({
    policy: "send_mail",
    gate: "all",
    set: { rate: 1 },
    reason: "more than the partner takes",
    by: "bo",
  });
  await page.locator("h1").click();
  await page.keyboard.press("r");
  await page.locator("td", { hasText: "more than the partner takes" }).waitFor();
  t.deepEqual(messages, []);
});

inBrowser("a refresh puts in what is new; the focus and open details stay", async (t) => {
  const { page, base, utils, messages } = await tab(t, browser());
  await refreshing(page, `${base}/policy?policy=send_mail`);
  await tabTo(page, "Definition in force");
  await page.keyboard.press("Enter");
  await page.locator("details[open]").waitFor();
  await utils.pause({ policy: "send_mail", reason: "incident 12", by: "bo" });
  await page.locator("dd", { hasText: "paused" }).waitFor();
  t.is(await focused(page), "Definition in force");
  t.is(await page.locator("details[open]").count(), 1);
  t.deepEqual(messages, []);
});

inBrowser(
  "a refresh leaves what somebody fills in, in the field that has the focus and in all others",
  async (t) => {
    const { page, base, utils, messages } = await tab(t, browser());
    await refreshing(page, `${base}/jobs`);
    await page.getByLabel("Added within").selectOption("1 hour");
    await page.getByLabel("Policy").fill("send_mail");
    await page.getByLabel("Task").fill("send");
    const [added] = await utils.addJobs([{ identifier: "nightly", payload: {} }]); // of no policy: it is listed at once
    await page.getByRole("link", { name: added!.id, exact: true }).waitFor();
    t.is(await page.getByLabel("Added within").inputValue(), "1 hour");
    t.is(await page.getByLabel("Policy").inputValue(), "send_mail");
    t.is(await page.getByLabel("Task").inputValue(), "send");
    await page.getByRole("button", { name: "Show" }).click();
    await page.waitForURL(/policy=send_mail&.*added=1\+hour/);
    await page.getByLabel("Policy").fill("");
    await page.getByRole("button", { name: "Show" }).click();
    await page.waitForURL(/policy=&/);
    t.deepEqual(messages, []);
  },
);

inBrowser(
  "a refresh takes no row away while a job is ticked, and the button leads to what is ticked",
  async (t) => {
    const { page, base, utils, messages } = await tab(t, browser());
    const jobs = await utils.addJobs([1, 2, 3].map(() => ({ identifier: "nightly", payload: {} })));
    const [first, second, third] = jobs.map(({ id }) => id) as [string, string, string];
    const box = (id: string) => page.getByLabel(`Job ${id}`, { exact: true });
    await refreshing(page, `${base}/jobs?task=nightly`);
    await box(second).check();
    await utils.completeJobs([first]);
    // each was asked for after the job was gone; the second comes when the first has been put in
    for (let n = 0; n < 2; n++) await page.waitForResponse((answer) => answer.status() === 200);
    t.is(await box(first).count(), 1);
    t.true(await box(second).isChecked());
    await box(second).uncheck();
    await box(first).waitFor({ state: "detached" });
    t.false(await box(second).isChecked());
    await box(second).check();
    await box(third).check();
    await page.getByRole("button", { name: "Cancel ticked" }).click();
    await titled(page, "Cancel");
    t.is(await page.locator("input[name=ids]").inputValue(), `${second},${third}`);
    t.deepEqual(await findings(page), []);
    t.deepEqual(messages, []);
  },
);

inBrowser("a refresh that meets a sign-in leaves the page, says so, and goes on afterwards", async (t) => {
  let signIn: (() => Response) | undefined;
  const authorize = () => signIn?.() ?? ({ name: "ana", role: "operator" } as const);
  const { page, base, utils } = await tab(t, browser(), { authorize });
  await refreshing(page, `${base}/limits`);
  const status = page.getByRole("status");
  const html = { headers: { "content-type": "text/html" } };
  const password = "<title>Sign in</title><main><h1>Password</h1></main>";
  for (const [meets, says] of [
    [() => Response.redirect(`${base}/assets/style.css`), "sign in again"],
    [() => Response.redirect("https://sign.in.example/"), "sign in again"],
    [() => new Response(password, html), "sign in again"],
    [() => new Response("no", { status: 401 }), "sign in again"],
    [() => new Response("away", { status: 503 }), "the server answers 503"],
  ] as const) {
    signIn = meets;
    await status.filter({ hasText: new RegExp(`^As of \\d\\d:\\d\\d:\\d\\d: ${says}$`) }).waitFor();
    await titled(page, "Limits");
    signIn = undefined;
    await utils.setLimit({ policy: "send_mail", gate: "all", set: { rate: 1 }, reason: says, by: "bo" });
    await status.filter({ hasText: /^$/ }).waitFor({ state: "attached" });
  }
  await page.locator("td", { hasText: /^the server answers 503$/ }).waitFor();
  await titled(page, "Limits");
  t.is(await status.textContent(), "");
});
