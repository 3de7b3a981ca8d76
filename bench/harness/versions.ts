import { readFileSync } from "node:fs";

/** Of what is measured. */
export const VERSIONS = {
  graphileWorker: versionIn("../../node_modules/graphile-worker/package.json"),
  dispatchPolicy: versionIn("../../package.json"),
} as const;

function versionIn(file: string): string {
  return JSON.parse(readFileSync(new URL(file, import.meta.url), "utf8")).version;
}
