// A verb for all jobs of a filter in Chromium: it goes on by itself until it is done or stopped. Without its script a button
// goes on. Without a Chromium these tests are skipped.
import test, { type ExecutionContext } from "ava";
import type { Page } from "playwright-core";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { findings, noticed, served, sharedBrowser, titled } from "./browser.ts";

const work = definePolicy("work", { partitionBy: "k" });
const { inBrowser, browser } = sharedBrowser(test);

/** A tab at the page that asks, with 1,100 jobs of a queue and one of another. */
async function asked(t: ExecutionContext) {
  const { pool } = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  const job = { identifier: "work", payload: { k: "a" }, queueName: "slow" };
  await utils.addJobs(Array.from({ length: 1100 }, () => job));
  await utils.addJob("work", { k: "a" });
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "operator" }) });
  const { base, close } = await served(ui);
  t.teardown(close);
  const context = await browser().newContext();
  t.teardown(() => context.close());
  const page = await context.newPage();
  const messages: string[] = [];
  page.on("console", (message) => messages.push(message.text()));
  page.on("pageerror", (error) => messages.push(String(error)));
  await page.goto(`${base}/jobs?policy=work&queue=slow`);
  await page.getByRole("link", { name: "Remove all that match" }).click();
  await titled(page, "Remove all that match");
  t.regex((await page.textContent("main")) ?? "", /1,100 jobs match now/);
  await page.getByLabel("Reason, for the audit").fill("left us");
  const staged = async () => (await pool.query("select from dispatch_policy.staged_jobs")).rowCount;
  const start = () => page.getByRole("button", { name: "Remove", exact: true }).click();
  const add = () => utils.addJob("work", job.payload, { queueName: job.queueName });
  return { page, messages, staged, start, add };
}

async function says(page: Page, text: string): Promise<void> {
  await page.getByText(text).waitFor();
}

inBrowser("with JavaScript the steps go on by themselves, to the end", async (t) => {
  const { page, messages, staged, start, add } = await asked(t);
  await start();
  await noticed(page, /^Removed 1,100 of 1,100 staged jobs\. By ana$/);
  t.is(await staged(), 1);
  await add();
  await page.reload();
  await noticed(page, /^Removed 1,100 of 1,100 staged jobs\. By ana$/);
  t.is(await staged(), 2, "one that came since");
  t.deepEqual(messages, []);
});

/** Clicks on stop as soon as the page goes on, while the step is under way. */
const STOPPER = `addEventListener("submit", ({ submitter }) => {
  if (submitter?.dataset.goesOn !== undefined)
    queueMicrotask(() => document.querySelector("[name=stop]").click());
}, true)`;

inBrowser("a stop while a step is under way counts when it has ended, and says what was done", async (t) => {
  const { page, messages, staged, start } = await asked(t);
  await page.addInitScript(STOPPER);
  await start();
  await noticed(page, /^Removed 1,000 of 1,000 staged jobs\. By ana$/);
  t.is(await staged(), 101);
  t.deepEqual(messages, []);
});

inBrowser(
  "without the script a button goes on, and another stops; axe finds nothing on the page between",
  async (t) => {
    const { page, staged, start } = await asked(t);
    await page.route("**/live.js*", (route) => route.abort());
    await start();
    await titled(page, "Remove: going on");
    t.deepEqual(await findings(page), []);
    await page.getByRole("button", { name: "go on" }).click();
    await says(page, "1,000 of 1,100 jobs were taken, and 1,000 changed.");
    await page.getByRole("button", { name: "stop" }).click();
    await noticed(page, /^Removed 1,000 of 1,000 staged jobs\. By ana$/);
    await page.reload();
    await noticed(page, /^Removed 1,000 of 1,000 staged jobs\. By ana$/);
    t.is(await staged(), 101);
    await titled(page, "Jobs");
    t.is(await page.getByLabel("Queue").inputValue(), "slow");
  },
);
