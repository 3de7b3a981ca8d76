import test from "ava";
import type { LookedPage } from "../../src/db/engine.ts";
import { makeSuspects } from "../../src/pool/suspects.ts";

const page = (lost: string[], more: Partial<LookedPage> = {}): LookedPage => ({
  ...{ after: "0", next_after: "0", known: ["p"], ours: [], foreign_ids: [], ...more },
  lost: lost.map((job) => ({ job, admission: "1", attempt: 0, ok: null, retry: null, policy: "p" })),
});

const jobs = (slots: readonly { job: string }[]) => slots.map(({ job }) => job);

test("a slot is lost after a second", (t) => {
  const suspects = makeSuspects();
  t.deepEqual(jobs(suspects.lost(page(["1"]), 0, false)), []);
  t.deepEqual(jobs(suspects.lost(page(["1", "2"]), 999, false)), []);
  t.deepEqual(jobs(suspects.lost(page(["1", "2"]), 1000, false)), ["1"]);
});

test("a slot that was freed meanwhile begins anew", (t) => {
  const suspects = makeSuspects();
  suspects.lost(page(["1"]), 0, false);
  suspects.lost(page([]), 500, false);
  t.deepEqual(jobs(suspects.lost(page(["1"]), 1000, false)), []);
});

test("while jobs keep ending elsewhere, one that nobody saw running is lost after 150 ms", (t) => {
  const suspects = makeSuspects();
  t.deepEqual(jobs(suspects.lost(page(["1"]), 0, true)), []);
  t.deepEqual(jobs(suspects.lost(page(["1"]), 149, true)), []);
  t.deepEqual(jobs(suspects.lost(page(["1"]), 150, true)), ["1"]);
});

test("then one that ran in a foreign pool is lost at once, and one of a known pool after a second", (t) => {
  const suspects = makeSuspects();
  suspects.lost(page([], { ours: ["1"], foreign_ids: ["2"] }), 0, true);
  t.deepEqual(jobs(suspects.lost(page(["1", "2"]), 10, true)), ["2"]);
  t.deepEqual(jobs(suspects.lost(page(["1"]), 1009, true)), []);
  t.deepEqual(jobs(suspects.lost(page(["1"]), 1010, true)), ["1"]);
});

test("a page forgets nothing of other pages", (t) => {
  const suspects = makeSuspects();
  suspects.lost(page(["1"], { next_after: "10" }), 0, false);
  suspects.lost(page(["11"], { after: "10" }), 500, false);
  t.deepEqual(jobs(suspects.lost(page(["1"], { next_after: "10" }), 1000, false)), ["1"]);
});
