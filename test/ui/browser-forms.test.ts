// Forms in Chromium: the order of their fields by keyboard, where the focus begins if a value is wrong, and the pages that a form
// leads to. Without a Chromium these tests are skipped.
import test from "ava";
import type { Page } from "playwright-core";
import { ACTIONS } from "../../src/ui/pages/actions.ts";
import { titleOf } from "../../src/ui/pages/form.ts";
import { beside, findings, focused, noticed, sharedBrowser, tab, titled } from "./browser.ts";

const { inBrowser, browser } = sharedBrowser(test);

const PARTITION = "policy=fetch_endpoint&partition=ep1";
/** A key and a reason that have no place to break. */
const LONG = "x".repeat(300);

/** What each form acts on. */
const TARGETS: Readonly<Record<string, string>> = {
  "release-slots": "ids=1",
  "set-limit": "policy=fetch_endpoint&gate=concurrency",
  "clear-limit": "policy=fetch_endpoint&gate=account&key=acme",
};

/** What axe finds in both themes, and what is beside a telephone's screen. */
async function wrongWith(page: Page): Promise<readonly string[]> {
  const wrong: string[] = [];
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    wrong.push(...(await findings(page)).map((one) => `${colorScheme}: ${one}`));
  }
  const pixels = await beside(page);
  return pixels > 0 ? [...wrong, `${pixels} beside the screen`] : wrong;
}

inBrowser(
  "by Tab: first what it acts on, then each field, then the reason, the button, and the way out",
  async (t) => {
    const { page, base, messages } = await tab(t, browser());
    for (const [verb, { label, fields }] of Object.entries(ACTIONS)) {
      await page.goto(`${base}/act/${verb}?${TARGETS[verb] ?? PARTITION}`);
      // Tab leads to one chip of each group: the checked one, else the first
      const chip =
        ".chips label:has(:checked), .chips:not(:has(:checked)) label:has([type=radio]):nth-of-type(1)";
      const stops = page.locator(`form.act > label, .chips label:not(:has([type=radio])), ${chip}`);
      const chips = await page.locator(".chips").count();
      t.true(verb === "set-limit" || (await stops.count()) === fields.length + 1 + chips, verb);
      await page.locator("main").focus();
      const met: string[] = [];
      while (met.at(-1) !== "Leave it" && met.length < 30) {
        await page.keyboard.press("Tab");
        met.push(await focused(page));
      }
      const labels = await stops.evaluateAll((all) => all.map((one) => one.firstChild?.textContent?.trim()));
      const first = met.indexOf(labels[0] ?? "");
      t.deepEqual(met.slice(first, first + labels.length), labels, verb);
      t.is(met[first + labels.length], titleOf({ label }), "the button that does it comes before all others");
    }
    t.deepEqual(messages, []);
  },
);

inBrowser(
  "a wrong value: the focus begins at what is wrong, the next Tab leads to the field, and it can be mended",
  async (t) => {
    const { page, base, utils } = await tab(t, browser());
    await page.goto(`${base}/act/hold?${PARTITION}`);
    await page.getByLabel("Another length").fill("soon");
    await page.getByLabel("Reason, for the audit").fill("429");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await titled(page, "Hold");
    t.regex(await focused(page), /^for must be a duration/);
    await page.keyboard.press("Tab");
    t.is(await focused(page), "30 min");
    await page.keyboard.press("Tab");
    t.is(await focused(page), "Another length");
    await page.keyboard.type("5 minutes");
    await page.keyboard.press("Enter");
    await noticed(page, /^Put partition ep1 .* on hold for 5 min\. By ana · Undo$/);
    t.is((await utils.stops()).find(({ partition }) => partition === "ep1")?.reason, "429");
  },
);

inBrowser("of the chips and the text beside them that counts which was given last", async (t) => {
  const { page, base, utils, messages } = await tab(t, browser());
  await page.goto(`${base}/act/pause?policy=send_mail`);
  const chosen = () => page.locator("form.act :checked").evaluateAll((all) => all.map((one) => one.value));
  const text = page.getByLabel("Another length");
  t.deepEqual(await chosen(), [""]);
  await page.getByLabel("2 h", { exact: true }).click();
  await text.fill("5 minutes");
  t.deepEqual(await chosen(), []);
  await text.fill("");
  t.deepEqual(await chosen(), [""], "then it has no end, and says so");
  await text.fill("5 minutes");
  await page.getByLabel("30 min", { exact: true }).click();
  t.is(await text.inputValue(), "");
  await page.getByLabel("Reason, for the audit").fill("429");
  await page.getByRole("button", { name: "Pause" }).click();
  await noticed(page, /^Paused policy send_mail, for 30 min\./);
  t.truthy((await utils.stops({ policy: "send_mail" }))[0]?.until);
  t.deepEqual(messages, []);
});

inBrowser(
  "axe finds nothing on the pages that a form leads to, and none is scrolled sideways on a telephone",
  async (t) => {
    let role: "operator" | "viewer" = "operator";
    const authorize = () => ({ name: "ana", role });
    const context = { viewport: { width: 390, height: 844 } };
    const { page, base } = await tab(t, browser(), { authorize, context });
    const ids = Array.from({ length: 40 }, (_, n) => 1_000_000_000_000_000 + n).join();
    const wrong: string[] = [];
    const look = async (name: string) => {
      wrong.push(...(await wrongWith(page)).map((one) => `${name}: ${one}`));
    };
    const send = async (path: string, title: string, fields: Readonly<Record<string, string>> = {}) => {
      await page.goto(base + path);
      for (const [name, value] of Object.entries({ reason: LONG, ...fields }))
        await page.locator(`[name="${name}"]:not([type=radio])`).fill(value);
      await page.locator("form.act button").first().click();
      await titled(page, title);
      await look(`${path} ${JSON.stringify(fields)}`);
    };
    await send("/bulk/move?policy=fetch_endpoint&partition=ep3", "Jobs", { "to-partition": LONG });
    await send(`/act/remove?ids=${ids}`, "Jobs");
    await send(`/act/remove?ids=${ids}`, "Jobs");
    await send(`/act/pause?policy=make_report&partition=${LONG}`, "No jobs");
    await send(`/act/hold?${PARTITION}`, "Hold", { for: LONG });
    await send(`/act/move?${PARTITION}`, "Move", { "to-policy": LONG });
    for (const path of [`/act/hold`, `/bulk/remove?policy=fetch_endpoint&queue=${LONG}`, "/bulk/remove"]) {
      await page.goto(base + path);
      await look(path);
    }
    await page.goto(`${base}/act/pause?${PARTITION}`);
    role = "viewer";
    await page.getByLabel("Reason, for the audit").fill("too late");
    await page.getByRole("button", { name: "Pause" }).click();
    await titled(page, "Not done");
    await look("a form of a viewer");
    await page.goto(`${base}/act/pause?${PARTITION}`);
    await look("a viewer's page");
    t.deepEqual(wrong, []);
  },
);
