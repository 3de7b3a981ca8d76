// Every page over a database with something on each, as the pictures show it: what axe finds, and a telephone's width.
import test from "ava";
import { atLength, type Register } from "../helpers/at-length.ts";
import { beside, findChromium, findings, launch, served } from "./browser.ts";
import { showcase } from "./showcase.ts";

const program = findChromium();

const inBrowser: Register = program ? atLength : test.serial.skip;

inBrowser(
  "axe finds nothing in either theme, none is scrolled sideways on a telephone, and the console is empty",
  async (t) => {
    const it = await showcase();
    t.teardown(it.close);
    const { base, close } = await served(it.ui);
    t.teardown(close);
    const browser = await launch(program as string);
    t.teardown(() => browser.close());
    const page = await browser.newPage({ viewport: { width: 390, height: 844 } });
    const wrong: string[] = [];
    page.on("console", (message) => wrong.push(`${page.url()}: ${message.text()}`));
    page.on("pageerror", (error) => wrong.push(`${page.url()}: ${error}`));
    for (const [name, path] of Object.entries(it.pages)) {
      const answer = await page.goto(base + path);
      if (answer?.status() !== (name === "nothing" ? 404 : 200)) wrong.push(`${name}: ${answer?.status()}`);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        wrong.push(...(await findings(page)).map((one) => `${colorScheme} ${name}: ${one}`));
      }
      const pixels = await beside(page);
      if (pixels > 0) wrong.push(`${name}: ${pixels} beside the screen`);
    }
    t.deepEqual(
      wrong.filter((one) => !one.includes("404 (Not Found)")),
      [],
    );
  },
);
