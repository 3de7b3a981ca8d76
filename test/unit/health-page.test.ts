// docs/operating.md, "What doctor finds": it explains each finding of the doctor and each threshold, and no other.
import { readFileSync } from "node:fs";
import test from "ava";
import { FINDING_IDS, THRESHOLDS } from "../../src/operate/doctor/finding.ts";
import { textOfChapter } from "../helpers/page.ts";

const page = readFileSync(new URL("../../docs/operating.md", import.meta.url), "utf8");
const chapter = textOfChapter(page, "What doctor finds");
const headingsOf = (text: string) => [...text.matchAll(/^### `([\w-]+)`$/gm)].map(([, id]) => id!);
/** This finding has the name of a reason, and a page has an anchor once. */
const AMONG_REASONS = "quarantined";

test("each finding has a section", (t) => {
  t.deepEqual([...headingsOf(chapter), AMONG_REASONS].toSorted(), [...FINDING_IDS].toSorted());
  t.is(headingsOf(page).filter((id) => id === AMONG_REASONS).length, 1);
});

test("each threshold is listed with its default", (t) => {
  const listed = [...chapter.matchAll(/`(\w+)` = ([\d.,]*\d)/g)].map(([, key, value]) => [
    key,
    Number(value!.replaceAll(",", "")),
  ]);
  t.is(listed.length, Object.keys(THRESHOLDS).length);
  t.deepEqual(Object.fromEntries(listed), { ...THRESHOLDS });
});
