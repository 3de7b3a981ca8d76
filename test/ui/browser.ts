// The pages in a real browser, where one is installed. What that takes is loaded only then.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { ExecutionContext, TestFn } from "ava";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import type { Ui, UiOptions } from "../../src/ui/ui.ts";
import { atLength, type Register } from "../helpers/at-length.ts";
import { findProgram } from "../helpers/program.ts";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const FOLDERS = ["/usr/bin", "/snap/bin", "/Applications/Google Chrome.app/Contents/MacOS"];

/** CHROMIUM, else the first on PATH, or where it usually is; undefined: not installed. */
export function findChromium(): string | undefined {
  return process.env.CHROMIUM || NAMES.map((name) => findProgram(name, FOLDERS)).find(Boolean);
}

/** What it would otherwise ask its maker by itself. */
const QUIET =
  "--disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync";

export async function launch(executablePath: string): Promise<Browser> {
  const { chromium } = await import("playwright-core");
  return chromium.launch({ executablePath, args: QUIET.split(" ") });
}

/** A browser for the tests of a file, of which a run takes half. Where none is installed they are skipped. */
export function sharedBrowser(test: TestFn) {
  const program = findChromium();
  let browser: Browser | undefined;
  if (program) {
    test.before(async () => {
      browser = await launch(program);
    });
    test.after.always(() => browser?.close());
  }
  const inBrowser: Register = program ? atLength : test.serial.skip;
  return { inBrowser, browser: () => browser as Browser };
}

type Options = Partial<Omit<UiOptions, "pool" | "preset">> & { readonly context?: BrowserContextOptions };

/** The pages behind Node's http server. */
export async function served(ui: Ui): Promise<{ base: string; close(): void }> {
  const { toNodeHandler } = await import("../../src/ui/ui.ts");
  const server = http.createServer(toNodeHandler(ui)).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    base: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** The pages behind Node's http server, and a tab of a browser that has no page yet. */
export async function tab(t: ExecutionContext, browser: Browser, { context, ...options }: Options = {}) {
  const { world } = await import("./world.ts");
  const it = await world(t, options);
  const { base, close } = await served(it.ui);
  t.teardown(close);
  /** Of the browser's console, with what the pages' own policy has refused. */
  const messages: string[] = [];
  const open = async (contextOptions?: BrowserContextOptions) => {
    const opened = await browser.newContext(contextOptions);
    t.teardown(() => opened.close());
    const page = await opened.newPage();
    page.on("console", (message) => messages.push(`${page.url()}: ${message.text()}`));
    page.on("pageerror", (error) => messages.push(`${page.url()}: ${error}`));
    return page;
  };
  return { ...it, base, messages, open, page: await open(context) };
}

/** What axe finds wrong with the page, in words. */
export async function findings(page: Page): Promise<readonly string[]> {
  await page.evaluate(axe()); // by the debugger, past the page's policy
  const found = (await page.evaluate("axe.run(document)")) as {
    violations: { id: string; nodes: { html: string }[] }[];
  };
  return found.violations.map(({ id, nodes }) => `${id}, ${nodes.length}: ${nodes[0]?.html.slice(0, 200)}`);
}

let source: string | undefined;

function axe(): string {
  source ??= readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");
  return source;
}

/** How many pixels of the page are beside the screen. */
export async function beside(page: Page): Promise<number> {
  return (await page.evaluate(
    "document.documentElement.scrollWidth - document.documentElement.clientWidth",
  )) as number;
}

/** What a screen reader calls the element that has the focus. */
const FOCUSED = `(() => {
  const it = document.activeElement;
  return (it.ariaLabel ?? it.labels?.[0]?.firstChild.textContent ?? it.textContent).trim();
})()`;

export async function focused(page: Page): Promise<string> {
  return (await page.evaluate(FOCUSED)) as string;
}

const MOST_TABS = 150;

/** Presses Tab until the element of this name has the focus. */
export async function tabTo(page: Page, name: string): Promise<void> {
  const met: string[] = [];
  while (met.at(-1) !== name) {
    if (met.length > MOST_TABS) throw new Error(`Tab does not reach "${name}", but ${met.join(", ")}`);
    await page.keyboard.press("Tab");
    met.push(await focused(page));
  }
}

/** Goes to a link or a button by Tab, follows it, and waits for the page of this title. */
export async function follow(page: Page, name: string, title: string): Promise<void> {
  await tabTo(page, name);
  await page.keyboard.press("Enter");
  await titled(page, title);
}

export async function titled(page: Page, title: string): Promise<void> {
  await page.getByRole("heading", { level: 1, name: title, exact: true }).waitFor();
}

/** Waits for the page that says what a form has done. */
export async function noticed(page: Page, says: RegExp): Promise<void> {
  await page.locator(".notice [role=status]").filter({ hasText: says }).waitFor();
}

/** Goes to a field by Tab, and types. */
export async function fill(page: Page, name: string, text: string): Promise<void> {
  await tabTo(page, name);
  await page.keyboard.type(text);
}
