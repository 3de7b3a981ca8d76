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

type Name = "style.css" | "live.js" | "idiomorph.js";

let read: Readonly<Record<Name, Asset>> | undefined;

/** What browsers load beside the pages. It is read once, and not before somebody needs it: a bundle may lack its files. */
export function assets(): Readonly<Record<Name, Asset>> {
  read ??= readAll();
  return read;
}

function readAll(): Readonly<Record<Name, Asset>> {
  const own = (name: string) => readFileSync(ownFile(`src/ui/assets/${name}`), "utf8");
  const morph = createRequire(ownFile("package.json")).resolve("idiomorph/dist/idiomorph.esm.js");
  const [style, script] = ["text/css; charset=utf-8", "text/javascript; charset=utf-8"];
  const idiomorph = asset(script, readFileSync(morph, "utf8"));
  return {
    "style.css": asset(style, own("style.css")),
    "live.js": asset(script, own("live.js").replace("./idiomorph.js", `./idiomorph.js?v=${idiomorph.hash}`)),
    "idiomorph.js": idiomorph,
  };
}

function asset(type: string, text: string): Asset {
  return { type, text, hash: createHash("sha256").update(text).digest("base64url").slice(0, 12) };
}

/** Where a page finds one. */
export function assetPath(base: string, name: Name): string {
  return `${base}/assets/${name}?v=${assets()[name].hash}`;
}
