import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { ownFile } from "../own-files.ts";

interface Asset {
  readonly type: string;
  read(): Promise<string>;
}

/** What browsers load beside the pages. Each is read once. */
export function assets(): Readonly<Record<string, Asset>> {
  const own = (name: string) => ownFile(`src/ui/assets/${name}`);
  const resolve = createRequire(ownFile("package.json")).resolve;
  return {
    "style.css": asset("text/css; charset=utf-8", own("style.css")),
    "live.js": asset("text/javascript; charset=utf-8", own("live.js")),
    "idiomorph.js": asset("text/javascript; charset=utf-8", resolve("idiomorph/dist/idiomorph.esm.js")),
  };
}

function asset(type: string, file: string): Asset {
  let text: Promise<string> | undefined;
  return {
    type,
    read() {
      text ??= readFile(file, "utf8");
      return text;
    },
  };
}
