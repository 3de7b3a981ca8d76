// Open tabs share what was made for one of them, and nobody sees what others have the rights to.
import test, { type ExecutionContext } from "ava";
import { tokenOf } from "../../src/ui/pages/one-time.ts";
import type { Found } from "../../src/ui/pages/pages.ts";
import { html } from "../../src/ui/parts/markup.ts";
import { makeSnapshots } from "../../src/ui/snapshots.ts";
import { createUi, type Viewer } from "../../src/ui/ui.ts";
import { HERE, world } from "./world.ts";

/** As a tab asks again. */
const AGAIN = { "cache-control": "max-age=9" };

/** Pages for whoever the header `who` names, and how many connections they took from the pool. */
async function counted(t: ExecutionContext) {
  const it = await world(t);
  const senders: Record<string, Viewer> = {
    ana: { name: "ana", role: "operator" },
    eve: { name: "eve", role: "viewer" },
    ida: { name: "ida", role: "viewer" },
  };
  let taken = 0;
  const pool = {
    connect() {
      taken += 1;
      return it.pool.connect();
    },
  };
  const ui = createUi({
    pool: pool as never,
    authorize: ({ headers }) => senders[headers.get("who") ?? "ana"] ?? null,
  });
  const text = async (path: string, headers: Record<string, string> = {}) =>
    (await ui(new Request(HERE + path, { headers }))).text();
  const send = (path: string, form: Record<string, string>) =>
    ui(
      new Request(HERE + path, {
        method: "POST",
        body: new URLSearchParams({ ...form, form: tokenOf(new Date()) }),
        headers: { "sec-fetch-site": "same-origin" },
      }),
    );
  return { ...it, text, send, taken: () => taken };
}

test("twenty open tabs cost the database what one does", async (t) => {
  const { text, taken } = await counted(t);
  await text("/", AGAIN);
  const ofOne = taken();
  t.true(ofOne > 0);
  await text("/"); // somebody opens it, and sees it as it is
  t.is(taken(), 2 * ofOne);
  const pages = await Promise.all(Array.from({ length: 20 }, () => text("/", AGAIN)));
  t.is(taken(), 2 * ofOne);
  t.is(new Set(pages).size, 1);
});

test("who has other rights gets a page of their own, and each their own name", async (t) => {
  const { text, utils, taken } = await counted(t);
  await utils.setLimit({ policy: "send_mail", gate: "all", set: { rate: 1 }, reason: "r", by: "bo" });
  t.regex(await text("/limits"), /act\/clear-limit/);
  const eves = await text("/limits", { ...AGAIN, who: "eve" });
  t.notRegex(eves, /\/act\//);
  const before = taken();
  const idas = await text("/limits", { ...AGAIN, who: "ida" });
  t.is(taken(), before);
  t.is(idas, eves.replace("eve, viewer", "ida, viewer"));
});

test("after a form was sent no tab shows what was before", async (t) => {
  const { text, send } = await counted(t);
  t.notRegex(await text("/limits"), /the incident/);
  const limit = { policy: "send_mail", gate: "all", rate: "1", reason: "the incident" };
  await send("/act/set-limit", limit);
  t.regex(await text("/limits", AGAIN), /the incident/);
});

const page = (title: string): Found => ({ title, body: html`${title}` });

test("a page that failed is made again, and so is one that is too old", async (t) => {
  const snapshots = makeSnapshots();
  const failing = async (): Promise<Found> => Promise.reject(new Error("away"));
  await t.throwsAsync(snapshots.get("a", 9, failing), { message: "away" });
  t.like(await snapshots.get("a", 9, async () => page("first")), { title: "first" });
  t.like(await snapshots.get("a", 9, async () => page("second")), { title: "first" });
  t.like(await snapshots.get("a", 0, async () => page("third")), { title: "third" });
  t.like(await snapshots.get("b", 9, async () => page("other")), { title: "other" });
});

test("those who ask while a page is being made wait for it", async (t) => {
  const snapshots = makeSnapshots();
  const { promise, resolve } = Promise.withResolvers<Found>();
  const first = snapshots.get("a", 9, () => promise);
  const second = snapshots.get("a", 9, async () => page("another"));
  resolve(page("one"));
  t.deepEqual(await Promise.all([first, second]), [page("one"), page("one")]);
});

test("made-up addresses do not pile up", async (t) => {
  const snapshots = makeSnapshots();
  for (let n = 0; n < 150; n++) await snapshots.get(String(n), 9, async () => page("early"));
  t.like(await snapshots.get("149", 9, async () => page("late")), { title: "early" });
  t.like(await snapshots.get("0", 9, async () => page("late")), { title: "late" });
});
