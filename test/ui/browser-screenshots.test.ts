// SCREENSHOTS=DIR node scripts/postgres.ts -- npx ava test/ui/browser-screenshots.test.ts
// Takes a picture of every page, light and dark, as on a desk, on a wide one and on a telephone, over a database with
// something on each. SCREENSHOT_PAGES=overview,partition takes these alone.
import { mkdir } from "node:fs/promises";
import path from "node:path";
import test from "ava";
import { findChromium, launch, served } from "./browser.ts";
import { showcase } from "./showcase.ts";

const SIZES = {
  desk: { width: 1440, height: 900 },
  wide: { width: 2560, height: 1440 },
  phone: { width: 390, height: 844 },
} as const;

const { SCREENSHOTS: folder, SCREENSHOT_PAGES: pages } = process.env;
const program = findChromium();
const only = pages?.split(",");

(folder && program ? test : test.skip)("pictures of every page", async (t) => {
  t.timeout(300_000);
  const it = await showcase();
  t.teardown(it.close);
  const browser = await launch(program as string);
  t.teardown(() => browser.close());
  const { base, close } = await served(it.ui);
  t.teardown(close);
  await mkdir(folder as string, { recursive: true });
  for (const [size, viewport] of Object.entries(SIZES))
    for (const colorScheme of ["light", "dark"] as const) {
      const context = await browser.newContext({ viewport, colorScheme });
      const page = await context.newPage();
      for (const [name, address] of Object.entries(it.pages)) {
        if (only && !only.includes(name)) continue;
        await page.goto(base + address);
        const file = path.join(folder as string, `${name}-${size}-${colorScheme}.png`);
        await page.screenshot({ path: file, fullPage: true });
      }
      await context.close();
    }
  t.pass();
});
