import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { ownFile } from "../own-files.ts";

interface Asset {
  readonly type: string;
  readonly text: string;
  /** Of its text: under an address that names it, browsers keep it for good. */
  readonly hash: string;
}

function asset(type: string, text: string): Asset {
  return { type, text, hash: createHash("sha256").update(text).digest("base64url").slice(0, 12) };
}

const own = (name: string) => readFileSync(ownFile(`src/ui/assets/${name}`), "utf8");
const [STYLE, SCRIPT] = ["text/css; charset=utf-8", "text/javascript; charset=utf-8"];
const idiomorph = asset(
  SCRIPT,
  readFileSync(createRequire(ownFile("package.json")).resolve("idiomorph/dist/idiomorph.esm.js"), "utf8"),
);

/** What browsers load beside the pages. */
export const ASSETS = {
  "style.css": asset(STYLE, own("style.css")),
  "live.js": asset(SCRIPT, own("live.js").replace("./idiomorph.js", `./idiomorph.js?v=${idiomorph.hash}`)),
  "idiomorph.js": idiomorph,
} as const satisfies Readonly<Record<string, Asset>>;

/** Where a page finds one. */
export function assetPath(base: string, name: keyof typeof ASSETS): string {
  return `${base}/assets/${name}?v=${ASSETS[name].hash}`;
}
