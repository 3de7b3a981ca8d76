// docs/health.md explains each finding of the doctor and each threshold, and no other.
import { readFileSync } from "node:fs";
import test from "ava";
import { FINDING_IDS, THRESHOLDS } from "../../src/operate/doctor/finding.ts";

const page = readFileSync(new URL("../../docs/health.md", import.meta.url), "utf8");

test("each finding has a section", (t) => {
  const headings = [...page.matchAll(/^### `([\w-]+)`$/gm)].map(([, id]) => id);
  t.deepEqual(headings.toSorted(), [...FINDING_IDS].toSorted());
});

test("each threshold is listed with its default", (t) => {
  const listed = [...page.matchAll(/^\| `(\w+)` \| ([\d.,]+)/gm)].map(([, key, value]) => [
    key,
    Number(value!.replaceAll(",", "")),
  ]);
  t.deepEqual(Object.fromEntries(listed), { ...THRESHOLDS });
});
