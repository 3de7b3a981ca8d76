// Partitions that somebody ticks in the list: one form for all, a row in the audit for each, and once only.
import test, { type ExecutionContext } from "ava";
import { world as pages } from "./world.ts";

const EP1 = '["fetch_endpoint","ep1"]';
const EP2 = '["fetch_endpoint","ep2"]';

async function world(t: ExecutionContext) {
  const it = await pages(t);
  const post = async (path: string, form: readonly (readonly [string, string])[]) => {
    const answer = await it.ui(
      new Request(`http://127.0.0.1:4180${path}`, {
        method: "POST",
        body: new URLSearchParams(form as [string, string][]),
        headers: { "sec-fetch-site": "same-origin" },
      }),
    );
    return { status: answer.status, text: await answer.text(), to: answer.headers.get("location") ?? "" };
  };
  return {
    ...it,
    post,
    stopped: async () =>
      (await it.utils.stops({ policy: "fetch_endpoint" })).map(
        ({ partition, kind }) => `${partition} ${kind}`,
      ),
    did: async () =>
      (await it.audit())
        .filter(({ reason }) => reason === "storm" || reason === "Undo: storm")
        .map(({ verb, partition, by }) => `${by}: ${verb} ${partition}`),
  };
}

/** What the form of a page would send, with a reason. */
const filledIn = (page: string, reason = "storm"): (readonly [string, string])[] => [
  ...[...page.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)].map(
    ([, name, value]) => [name!, value!.replaceAll("&quot;", '"')] as const,
  ),
  ["reason", reason],
];

test("the list offers what stops partitions for those that are ticked, and a viewer none of it", async (t) => {
  const it = await world(t);
  const page = await it.text("/partitions?policy=fetch_endpoint");
  t.true(page.includes('name="at" value="[&quot;fetch_endpoint&quot;,&quot;ep1&quot;]" form="ticked"'));
  t.deepEqual(
    [...page.matchAll(/formaction="([^"]*)">([^<]*)</g)].map(([, to, says]) => `${to} ${says}`),
    ["/ticked/pause Pause ticked", "/ticked/resume Resume ticked", "/ticked/hold Hold ticked"],
  );
  t.notRegex(page, /<form[^>]* method="post"/, "else live.js reads it no more");
  const viewer = await pages(t, { viewer: { name: "eve", role: "viewer" } });
  t.notRegex(await viewer.text("/partitions"), /checkbox|formaction/);
});

test("ticked partitions are counted, paused one by one, and resumed by an undo; sent again nothing happens", async (t) => {
  const it = await world(t);
  const before = await it.stopped();
  const ask = await it.post("/ticked/pause", [
    ["at", EP1],
    ["at", EP2],
    ["at", EP1],
    ["list-policy", "fetch_endpoint"],
  ]);
  t.is(ask.status, 200);
  t.regex(ask.text, /It concerns <strong>2 partitions<\/strong>, with \d+ staged jobs/);
  t.deepEqual(await it.did(), []);
  const form = [...filledIn(ask.text), ["for", "30 minutes"] as const];
  const done = await it.post("/ticked/pause", form);
  t.is(done.status, 303);
  t.deepEqual(await it.did(), ["ana: pause ep1", "ana: pause ep2"]);
  t.deepEqual(await it.stopped(), [...before, "ep1 pause", "ep2 pause"].toSorted());
  t.is((await it.post("/ticked/pause", form)).status, 303);
  t.is((await it.did()).length, 2, "a form does its work once");
  t.regex(done.to, /^\/partitions\?policy=fetch_endpoint&did=/);
  const list = await it.text(done.to);
  t.regex(list, /Pause: done for 2 of 2 partitions\. By ana/);
  const undo = /href="(\/ticked\/resume\?[^"]*)">Undo/.exec(list)?.[1]?.replaceAll("&amp;", "&") ?? "";
  const back = await it.text(undo);
  t.regex(back, /It concerns <strong>2 partitions/);
  t.is((await it.post("/ticked/resume", filledIn(back, "Undo: storm"))).status, 303);
  t.deepEqual(await it.stopped(), before);
});

test("a form that was cut short goes on with the partitions that have no row yet", async (t) => {
  const it = await world(t);
  const [ep1, both] = [
    [["at", EP1] as const],
    [
      ["at", EP1],
      ["at", EP2],
    ] as const,
  ];
  const ask = await it.post("/ticked/hold", both);
  const rest = filledIn(ask.text).filter(([name]) => name !== "at");
  const wrong = await it.post("/ticked/hold", [...both, ...rest]);
  t.is(wrong.status, 400, "a hold has an end");
  t.regex(wrong.text, /for is missing/);
  t.deepEqual(await it.did(), []);
  await it.post("/ticked/hold", [...ep1, ...rest, ["for", "5 minutes"]]);
  t.deepEqual(await it.did(), ["ana: hold ep1"]);
  t.is((await it.post("/ticked/hold", [...both, ...rest, ["for", "5 minutes"]])).status, 303);
  t.deepEqual(await it.did(), ["ana: hold ep1", "ana: hold ep2"]);
});

test("nothing is done to any of them if somebody was faster with one, if none is ticked, or if a box is made up", async (t) => {
  const it = await world(t);
  const ask = await it.post("/ticked/pause", [
    ["at", EP1],
    ["at", EP2],
  ]);
  await it.utils.pause({ policy: "fetch_endpoint", partition: "ep2", reason: "first", by: "bo" });
  const late = await it.post("/ticked/pause", filledIn(ask.text));
  t.is(late.status, 409);
  t.regex(late.text, /Nothing was done: bo was faster/);
  t.deepEqual(await it.did(), []);
  const none = await it.post("/ticked/pause", []);
  t.is(none.status, 400);
  t.regex(none.text, /at is empty, expected at least one partition/);
  for (const box of ["ep1", '["fetch_endpoint"]', '["a","b","c"]', '[1,"b"]', '["\\x","b"]', "[]"])
    t.is((await it.post("/ticked/pause", [["at", box]])).status, 400, box);
  const many = Array.from({ length: 51 }, (_, n) => ["at", `["fetch_endpoint","k${n}"]`] as const);
  t.regex((await it.post("/ticked/pause", many)).text, /51 partitions are ticked, expected at most 50/);
  t.regex(await it.text("/ticked/pause"), /No partition is ticked here/);
});
