// The servers of docs/ui.md in Chromium: a sign-in by cookie, the pages, a change and its way back, by clicks alone.
// Without a Chromium these tests are skipped. A run takes one host of three; hosts.test.ts asks all of them without a browser.
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import test, { type ExecutionContext } from "ava";
import type { Browser, Page } from "playwright-core";
import { atLength, type Register } from "../helpers/at-length.ts";
import { findChromium, launch, noticed, titled } from "./browser.ts";
import { BASE, HOSTS, type Hosts, hosts, type Listener } from "./hosts.ts";

const program = findChromium();
const inBrowser: Register = program ? atLength : test.serial.skip;
let browser: Browser;
let it: Hosts;

if (program) {
  test.before(async () => {
    [browser, it] = await Promise.all([launch(program), hosts()]);
  });
  test.after.always(async () => {
    await browser?.close();
    await it?.end();
  });
}

const SIGN_IN = `<!doctype html><title>Sign in</title><link rel="icon" href="data:,">
<h1>Sign in</h1><form method="post"><label>Name <input name="name"></label><button>Sign in</button></form>`;

/** The application's own sign-in, which keeps a name in a cookie. All else is for the host. */
function withSignIn(listener: Listener): Listener {
  return async (request, response) => {
    if (request.url !== "/sign-in") return listener(request, response);
    if (request.method !== "POST") return response.setHeader("content-type", "text/html").end(SIGN_IN);
    const name = new URLSearchParams(await text(request)).get("name");
    const cookie = `session=${name}; HttpOnly; SameSite=Lax; Path=/`;
    return response.writeHead(303, { location: BASE, "set-cookie": cookie }).end();
  };
}

async function listening(t: ExecutionContext, listener: Listener): Promise<string> {
  const server = http.createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A tab that has no page yet, and what its console says. */
async function tab(t: ExecutionContext) {
  const context = await browser.newContext();
  t.teardown(() => context.close());
  const page = await context.newPage();
  const messages: string[] = [];
  page.on("console", (message) => messages.push(`${page.url()}: ${message.text()}`));
  page.on("pageerror", (error) => messages.push(`${page.url()}: ${error}`));
  return { page, messages };
}

/** Clicks a link of the page's content. */
async function click(page: Page, name: string, title: string): Promise<void> {
  await page.locator("main").getByRole("link", { name, exact: true }).click();
  await titled(page, title);
}

/** Sends the form of a page that asks first. */
async function confirm(page: Page, verb: string, reason: string): Promise<void> {
  await page.getByLabel("Reason, for the audit").fill(reason);
  await page.getByRole("button", { name: verb, exact: true }).click();
  await noticed(page, /By ana/);
}

for (const [name, host] of Object.entries(HOSTS))
  inBrowser(
    `${name} in Chromium: sign-in, pages, their style and script, a pause, and its end`,
    async (t) => {
      const origin = await listening(t, withSignIn(await host(it)));
      const { page, messages } = await tab(t);

      await page.goto(`${origin}${BASE}/policies`);
      t.is(page.url(), `${origin}/sign-in`);
      await page.getByLabel("Name").fill("ana");
      await page.getByRole("button").click();
      await titled(page, "Overview");
      t.is(page.url(), origin + BASE);
      t.is(await page.locator(".who").textContent(), "ana, operator");
      await page.locator("[data-live]").waitFor(); // its script shows it
      t.is(
        await page.evaluate("getComputedStyle(document.querySelector('nav ul')).display"),
        "flex",
        "the style is on",
      );

      for (const link of await page.getByRole("navigation").getByRole("link").all())
        t.true((await link.getAttribute("href"))?.startsWith(`${BASE}/`));
      await page.getByRole("navigation").getByRole("link", { name: "Policies" }).click();
      await titled(page, "Policies");
      await click(page, "send_mail", "send_mail");
      await click(page, "Pause…", "Pause");
      t.regex((await page.textContent("main")) ?? "", /It concerns \d+ partitions?, with \d+ staged jobs?/);
      await page.getByRole("button", { name: "Pause", exact: true }).click();
      await titled(page, "Pause"); // the browser asks for a reason
      await confirm(page, "Pause", name);
      await click(page, "Undo", "Resume");
      await confirm(page, "Resume", `${name}, over`);
      t.deepEqual(
        (await it.audited()).slice(-2).map(({ verb, by, reason }) => [verb, by, reason]),
        [
          ["pause", "ana", name],
          ["resume", "ana", `${name}, over`],
        ],
      );
      t.deepEqual(messages, [], "the pages' own policy refuses nothing of theirs");

      const lost = await page.goto(`${origin}${BASE}/nothing`);
      t.is(lost?.status(), 404);
      await titled(page, "Nothing here");
      await page.getByRole("navigation").getByRole("link", { name: "Overview" }).click();
      await titled(page, "Overview");
      const head = await page.request.head(`${origin}${BASE}/policies`);
      t.deepEqual([head.status(), await head.text()], [200, ""]);

      await refusesOthers(t, page, origin);
      const { page: stranger } = await tab(t);
      await stranger.goto(`${origin}${BASE}/act/pause?policy=send_mail`);
      t.is(stranger.url(), `${origin}/sign-in`);
    },
  );

/** A page of the same site, whose cookies the browser sends, but of another origin. */
async function refusesOthers(t: ExecutionContext, page: Page, origin: string): Promise<void> {
  const form = `<form method="post" action="${origin}${BASE}/act/pause"><input name="policy" value="send_mail">
<input name="reason" value="forged"><button>Win</button></form>`;
  const other = await listening(t, (_request, response) =>
    response.setHeader("content-type", "text/html").end(form),
  );
  await page.goto(other);
  const [answer] = await Promise.all([
    page.waitForResponse((one) => one.request().method() === "POST"),
    page.getByRole("button").click(),
  ]);
  t.is(answer.status(), 403);
  t.regex(await answer.text(), /does not come from these pages/);
  t.false((await it.audited()).some(({ reason }) => reason === "forged"));
}
