// node scripts/postgres.ts -- node test/ui/browser-screenshots.ts DIR
// Takes a picture of every page, light and dark, as on a desk and on a telephone, over a database with something on each.
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { findChromium, launch, served } from "./browser.ts";
import { showcase } from "./showcase.ts";

const SIZES = { desk: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } } as const;

const [folder = "screenshots", ...only] = process.argv.slice(2);
const program = findChromium();
if (!program) throw new Error("found no Chromium: install one, or name it in CHROMIUM");

const it = await showcase();
const browser = await launch(program);
const { base, close } = await served(it.ui);
try {
  await mkdir(folder, { recursive: true });
  for (const [size, viewport] of Object.entries(SIZES))
    for (const colorScheme of ["light", "dark"] as const) {
      const context = await browser.newContext({ viewport, colorScheme });
      const page = await context.newPage();
      for (const [name, address] of Object.entries(it.pages)) {
        const file = `${name}-${size}-${colorScheme}.png`;
        if (only.length > 0 && !only.includes(file)) continue;
        await page.goto(base + address);
        await page.screenshot({ path: path.join(folder, file), fullPage: only.length === 0 });
        console.log(file);
      }
      await context.close();
    }
} finally {
  close();
  await browser.close();
  await it.close();
}
