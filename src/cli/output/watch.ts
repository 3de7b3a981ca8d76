import { setTimeout as delay } from "node:timers/promises";
import type { Exit } from "../command.ts";
import { atTime, inWords } from "./words.ts";

const CLEAR = "\x1b[H\x1b[2J\x1b[3J";

/** Prints once; with `--watch` again and again, until ctrl-c ends the process. */
export async function watching(
  { watch, json }: { readonly watch: number | undefined; readonly json: boolean },
  print: () => Promise<Exit>,
): Promise<Exit> {
  if (watch === undefined) return print();
  const isScreen = process.stdout.isTTY && !json;
  for (;;) {
    if (isScreen)
      process.stdout.write(
        `${CLEAR}Every ${inWords(watch * 1000)}, now ${atTime(new Date())}; ctrl-c ends it.\n\n`,
      );
    await print();
    await delay(watch * 1000);
  }
}
