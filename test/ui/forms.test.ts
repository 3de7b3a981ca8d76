// What a form says that was not done: a wrong value, something that is gone meanwhile, a sender who may not.
import test from "ava";
import { createUi, type Staff } from "../../src/ui/ui.ts";
import { HERE, world } from "./world.ts";

const EP1 = { policy: "fetch_endpoint", partition: "ep1" };
const R = { reason: "incident 12" };

/** The page's own text. */
const mainOf = (page: string) => page.split("<main")[1]?.split("</main>")[0] ?? "";

/** A wrong value in each form that has a field. */
const WRONG: readonly (readonly [verb: string, form: Record<string, string>, says: RegExp])[] = [
  ["pause", { ...EP1, for: "soon" }, /for must be a duration, such as .*got &quot;soon&quot;/],
  ["hold", { ...EP1, for: "-1 hour" }, /for must be a duration, .*got &quot;-1 hour&quot;/],
  ["admit", { ...EP1, count: "many" }, /count must be a number, got &quot;many&quot;/],
  ["admit", { ...EP1, count: "0" }, /count must be a whole number/],
  ["move", { ...EP1 }, /Say where the jobs go: fill in a partition, a policy, or both/],
  ["move", { ...EP1, "to-policy": "nobody" }, /unknown policy &quot;nobody&quot;/],
  ["set-limit", { policy: "fetch_endpoint", gate: "gone", max: "1" }, /no gate &#39;gone&#39;/],
  ["set-limit", { policy: "fetch_endpoint", gate: "account", max: "a lot" }, /max must be a number/],
  [
    "set-limit",
    { policy: "fetch_endpoint", gate: "concurrency", where: "plan", max: "1" },
    /expected values of the context as JSON/,
  ],
  [
    "set-limit",
    { policy: "fetch_endpoint", gate: "throttle", rate: "1", from: "later" },
    /from must be a dur/,
  ],
];

for (const [verb, form, says] of WRONG)
  test(`${verb} with ${JSON.stringify(form)}: the form comes again with what was filled in`, async (t) => {
    const it = await world(t);
    const before = await it.audit();
    const answer = await it.send(`/act/${verb}`, { ...form, ...R });
    t.is(answer.status, 400);
    const page = await answer.text();
    t.regex(page, new RegExp(`<h1>${verb}</h1>`));
    t.regex(/role="alert"[^>]*>(.*?)<\/p>/s.exec(page)?.[1] ?? "no alert", says);
    for (const [name, value] of Object.entries({ ...form, ...R }))
      t.regex(
        page,
        new RegExp(`name="${name}" value="${value}"|name="${name}".*value="${value}" selected`),
        name,
      );
    t.regex(page, /It concerns <strong>|jobs?<?[^<]*match|<select name="gate"|<input name="gate"/);
    t.deepEqual(await it.audit(), before);
  });

test("a form that is asked for with a wrong value says so, and counts as if it were empty", async (t) => {
  const it = await world(t);
  const page = await it.text("/act/move?policy=fetch_endpoint&partition=ep1&to-policy=nobody");
  t.regex(page, /role="alert"[^>]*>unknown policy &quot;nobody&quot;/);
  t.regex(page, /<strong>3<\/strong> jobs match now/);
});

test("without what it acts on there is no form, and the page says where one is", async (t) => {
  const it = await world(t);
  for (const path of [
    "pause",
    "hold?policy=fetch_endpoint",
    "release-slots",
    "clear-limit?policy=send_mail",
  ]) {
    const answer = await it.get(`/act/${path}`);
    t.is(answer.status, 400, path);
    t.regex(await answer.text(), /is missing\. Fill it in, or come by a link on the page of a policy/, path);
  }
  t.regex(await it.text("/act/release-slots?ids=seven"), /must be a job id.*got &quot;seven&quot;/);
});

test("what is gone meanwhile: nothing is said to be kept or done, and there is nothing to undo", async (t) => {
  const it = await world(t);
  await it.utils.cancel({ ids: [it.first], by: "bo" });
  await it.utils.resume({ policy: "fetch_endpoint", partition: "ep3", by: "bo" });
  for (const [verb, form] of [
    ["retry", { ids: "77" }],
    ["remove", { ids: "1000000000000077" }],
    ["cancel", { ids: "77,78" }],
    ["release-slots", { ids: "77" }],
    ["move", { policy: "fetch_endpoint", partition: "gone", "to-partition": "ep1" }],
    ["admit", { policy: "fetch_endpoint", partition: "gone", count: "1" }],
    ["clear-limit", { policy: "fetch_endpoint", gate: "account", key: "acme" }],
    ["resume", { policy: "fetch_endpoint", partition: "ep3" }],
  ] as [string, Record<string, string>][]) {
    const page = await (await it.send(`/act/${verb}`, { ...form, ...R })).text();
    t.regex(page, new RegExp(`<h1>${verb}: nothing changed</h1>`), verb);
    t.regex(page, /Nothing matched\. What it was meant for may have ended|0 of 1 changed\./, verb);
    t.notRegex(mainOf(page), /Undo|kept|class="good"/, verb);
  }
  t.regex(await it.text("/act/cancel?ids=77"), /<strong>No job<\/strong> matches now/);
});

test("what is stored for jobs to come says so, and can be undone", async (t) => {
  const it = await world(t);
  const page = await (await it.send("/act/pause", { policy: "make_report", partition: "new", ...R })).text();
  t.regex(
    page,
    /<h1>pause: done<.*It is kept, and takes effect with the first job that matches.*Undo: resume/s,
  );
});

test("the slots of a job are counted before they are freed", async (t) => {
  const it = await world(t);
  t.regex(await it.text(`/act/release-slots?ids=${it.first}`), /<strong>1<\/strong> job matches now/);
  await it.send("/act/release-slots", { ids: it.first, ...R });
  t.regex(await it.text(`/act/release-slots?ids=${it.first}`), /<strong>No job<\/strong> matches now/);
});

test("a form names the page of what it acts on, and of many jobs the first ones", async (t) => {
  const it = await world(t);
  const page = mainOf(await it.text("/act/remove?ids=11,12,13,14,15,16,17"));
  t.deepEqual(
    [...page.matchAll(/href="\/job\?id=(\d+)"/g)].map(([, id]) => id),
    ["11", "12", "13", "14", "15"],
  );
  t.regex(page, /<dt>jobs<\/dt><dd>.* and 2 more<\/dd>/);
  t.regex(page, /name="ids" value="11,12,13,14,15,16,17"/);
  t.regex(
    await it.text("/act/hold?policy=make_report&partition="),
    /<dd><a href="[^"]*">\(empty\)<\/a><\/dd>/,
  );
});

test("a verb after which jobs do not run has a button of its own colour", async (t) => {
  const it = await world(t);
  const target = "policy=fetch_endpoint&partition=ep1";
  for (const verb of ["remove", "cancel"]) {
    t.regex(await it.text(`/act/${verb}?${target}`), new RegExp(`<button class="ends">${verb}<`));
    t.regex(await it.text(`/bulk/${verb}?${target}`), new RegExp(`<button class="ends">${verb}<`));
    t.regex(
      await it.text(`/jobs?${target}`),
      new RegExp(`class="ends" href="[^"]*">${verb} all that match<`),
    );
  }
  t.regex(await it.text(`/act/pause?${target}`), /<button>pause</);
});

for (const [path, form] of [
  ["/act/pause", { ...EP1, ...R }],
  ["/act/release-slots", { ids: "1", ...R }],
  ["/bulk/remove", { policy: "send_mail", "as-of": new Date().toISOString(), ...R }],
  ["/bulk/remove", { policy: "send_mail", "as-of": new Date().toISOString(), stop: "1", ...R }],
] as const)
  test(`what a form has done has an address, which does nothing: ${path} ${Object.keys(form)}`, async (t) => {
    const it = await world(t);
    const headers = { "sec-fetch-site": "same-origin" };
    const body = new URLSearchParams(form);
    const answer = await it.ui(new Request(HERE + path, { method: "POST", body, headers }));
    t.is(answer.status, 303);
    const done = (await it.audit()).length;
    const page = await it.text(answer.headers.get("location")!);
    t.regex(page, /<h1>[\w-]+: (?:done|nothing changed|stopped)</);
    t.is(await it.text(answer.headers.get("location")!), page);
    t.is((await it.audit()).length, done);
    const viewers = createUi({ pool: it.pool, authorize: () => ({ name: "eve", role: "viewer" }) });
    const shown = await viewers(new Request(HERE + answer.headers.get("location")));
    t.regex(await shown.text(), /A viewer changes nothing/);
  });

test("the answer to a form that does nothing is not read again: its address shows another page", async (t) => {
  const it = await world(t);
  const isLive = (page: string) => page.includes("data-live");
  t.true(isLive(await it.text("/act/pause?policy=send_mail")));
  for (const form of [{ ...EP1, ...R, for: "soon" }, EP1, { policy: "nobody", ...R }])
    t.false(isLive(await (await it.send("/act/pause", form)).text()), JSON.stringify(form));
});

test("all jobs of a filter that matches none: there is no form; a move to nowhere keeps it", async (t) => {
  const it = await world(t);
  const none = await it.text("/bulk/remove?policy=send_mail&queue=none");
  t.regex(none, /<strong>No job<\/strong> matches now in a state in which remove takes jobs/);
  t.notRegex(none, /<form class="act"/);
  const form = { ...EP1, ...R, "as-of": new Date().toISOString() };
  const answer = await it.send("/bulk/move", form);
  t.is(answer.status, 400);
  t.regex(
    await answer.text(),
    /<h1>move all that match<.*<strong>3 jobs<\/strong>.*Say where the jobs go.*value="incident 12" required/s,
  );
});

test("who may not do it gets a page that says so", async (t) => {
  let role: Staff["role"] = "operator";
  const it = await world(t, { authorize: () => ({ name: "ana", role }) });
  const says = async (headers: Record<string, string>) => {
    const answer = await it.send("/act/pause", { ...EP1, ...R }, headers);
    t.is(answer.status, 403);
    return answer.text();
  };
  t.regex(
    await says({ "sec-fetch-site": "cross-site" }),
    /<h1>Not done<.*does not come from these pages.*publicOrigins/s,
  );
  role = "viewer";
  t.regex(
    await says({ "sec-fetch-site": "same-origin" }),
    /<h1>Not done<.*Only an operator changes something here/s,
  );
  t.regex(await it.text("/act/pause?policy=send_mail"), /Send the address of this page to an operator/);
});
