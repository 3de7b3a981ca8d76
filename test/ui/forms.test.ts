// What a form says that was not done: a wrong value, something that is gone meanwhile, a sender who may not.
import test from "ava";
import { ACTIONS } from "../../src/ui/pages/actions.ts";
import { type ActionName, titleOf } from "../../src/ui/pages/form.ts";
import { tokenOf } from "../../src/ui/pages/one-time.ts";
import { createUi, type Staff } from "../../src/ui/ui.ts";
import { table } from "../helpers/table.ts";
import { HERE, sent, world } from "./world.ts";

const EP1 = { policy: "fetch_endpoint", partition: "ep1" };
const R = { reason: "incident 12" };

/** The page's own text. */
const mainOf = (page: string) => page.split("<main")[1]?.split("</main>")[0] ?? "";

/** What the page says that a form has done. */
const noticeIn = (page: string) => /<div class="notice">(.*?)<\/div>/s.exec(page)?.[1] ?? "";

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
    t.regex(page, new RegExp(`<h1>${titleOf(ACTIONS[verb as ActionName])}</h1>`));
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
    t.regex(
      noticeIn(page),
      /Nothing matched: what it was meant for may have ended|Nothing had stopped/,
      verb,
    );
    t.notRegex(noticeIn(page), /Undo|waits for the first|class="good"/, verb);
  }
  t.regex(await it.text("/act/cancel?ids=77"), /<strong>No job<\/strong> matches now/);
});

test("what is stored for jobs to come says so, and can be undone", async (t) => {
  const it = await world(t);
  const page = await (await it.send("/act/pause", { policy: "make_report", partition: "new", ...R })).text();
  t.regex(
    noticeIn(page),
    /Paused partition new of policy make_report, .*the pause waits for the first\. By ana.*\/act\/resume\?.*>Undo</,
  );
  t.regex(page, /<h1>No jobs</, "the partition has no page yet");
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
  for (const [verb, title] of [
    ["remove", "Remove"],
    ["cancel", "Cancel"],
  ] as const) {
    t.regex(await it.text(`/act/${verb}?${target}`), new RegExp(`<button class="ends">${title}<`));
    t.regex(await it.text(`/bulk/${verb}?${target}`), new RegExp(`<button class="ends">${title}<`));
    t.regex(
      await it.text(`/jobs?${target}`),
      new RegExp(`class="ends" href="[^"]*">${title} all that match<`),
    );
  }
  t.regex(await it.text(`/act/pause?${target}`), /<button>Pause</);
});

/** The chips of a form: each with its value and its words, and the one that is chosen. */
function chipsIn(page: string) {
  const chips = [
    ...page.matchAll(
      /<label>([^<]+|until <time.*?) <input type="radio" name="for" value="([^"]*)"( checked)?>/g,
    ),
  ];
  return {
    chips: chips.map(([, says, value]) => [value, says!.replace(/<[^>]*>/g, "")]),
    chosen: chips.filter(([, , , checked]) => checked).map(([, , value]) => value),
    text: /<input name="for" value="([^"]*)">/.exec(page)?.[1],
  };
}

test("a length of time is a chip: the usual ones, without an end, and what the address gives", async (t) => {
  const it = await world(t);
  const usual = [
    ["30 minutes", "30 min"],
    ["2 hours", "2 h"],
  ];
  const pause = "/act/pause?policy=send_mail";
  const open = [...usual, ["", "until it is resumed"]];
  t.deepEqual(chipsIn(await it.text(pause)), { chips: open, chosen: [""], text: "" });
  t.deepEqual(chipsIn(await it.text("/act/set-limit?policy=send_mail&gate=all")).chips.at(-1), [
    "",
    "until it is cleared",
  ]);
  const hold = `/act/hold?${new URLSearchParams(EP1)}`;
  t.deepEqual(chipsIn(await it.text(hold)), { chips: usual, chosen: [], text: "" });
  t.deepEqual(chipsIn(await it.text(`${pause}&for=2+hours`)), { chips: open, chosen: ["2 hours"], text: "" });
  for (const [given, says] of [
    ["1 hour", "1 h"],
    ["2030-01-02T03:04:05.600Z", "until 2030-01-02 03:04:05"],
  ] as const)
    t.deepEqual(chipsIn(await it.text(`${pause}&for=${encodeURIComponent(given)}`)), {
      ...{ chips: [[given, says], ...open], chosen: [given], text: "" },
    });
  t.deepEqual(chipsIn(await it.text(`${pause}&for=soon`)), { chips: open, chosen: [], text: "soon" });
});

test("of the chips and the text beside them one counts, and two that differ are refused", async (t) => {
  const it = await world(t);
  const send = async (lengths: readonly string[]) => {
    const body = new URLSearchParams({ ...EP1, ...R });
    for (const length of lengths) body.append("for", length);
    const answer = await sent(it.ui, `${HERE}/act/pause`, body);
    const page = await answer.text();
    return answer.status === 200
      ? wordsOf(noticeIn(page))
      : (/role="alert"[^>]*>(.*?)<\/p>/s.exec(page)?.[1] ?? "");
  };
  for (const [lengths, says] of [
    [["30 minutes", ""], /^Paused .*, for 30 min\./],
    [["", "5 minutes"], /^Paused .*, for 5 min\./],
    [["2 hours", "2 hours"], /^Paused .*, for 2 h\./],
    [["", ""], /^Paused .*, until somebody ends it\./],
    [["2 hours", "5 minutes"], /^for must be a duration, .*got &quot;2 hours or 5 minutes&quot;$/],
  ] as const)
    t.regex(await send(lengths), says, String(lengths));
  const hold = await it.send("/act/hold", { ...EP1, ...R });
  t.is(hold.status, 400);
  t.regex(await hold.text(), /role="alert"[^>]*>for is missing/);
});

const HEADERS = { "sec-fetch-site": "same-origin" };
const DONE: readonly (readonly [path: string, form: Record<string, string>, lands: string, says: RegExp])[] =
  [
    [
      "/act/pause",
      { ...EP1, ...R, for: "10 minutes" },
      "/partition",
      /^Paused partition ep1 of policy fetch_endpoint, for 10 min\. By ana$/,
    ],
    [
      "/act/pause",
      { policy: "send_mail", ...R },
      "/policy",
      /^Paused policy send_mail, until somebody ends it\./,
    ],
    [
      "/act/hold",
      { ...EP1, ...R, for: "90 minutes" },
      "/partition",
      /^Put partition ep1 .* on hold for 90 min\. By ana$/,
    ],
    [
      "/act/set-limit",
      { policy: "fetch_endpoint", gate: "account", max: "3", from: "1 day", for: "2 hours", ...R },
      "/policy",
      /^Set the limit of gate account for every key to max 3, beginning in 1 d, for 2 h\. By ana$/,
    ],
    ["/act/release-slots", { ids: "77", ...R }, "/job", /^Job 77 has no slots\. Nothing matched: .* By ana$/],
    ["/act/remove", { ids: "1,2", ...R }, "/jobs", /^Removed 0 of 0 staged jobs\./],
    [
      "/act/move",
      { policy: "fetch_endpoint", partition: "gone", "to-partition": "x", ...R },
      "/partition",
      /^Nothing has changed\. Nothing matched/,
    ],
    ["/bulk/remove", { policy: "send_mail", ...R }, "/jobs", /^Removed \d+ of \d+ staged jobs\. By ana$/],
    ["/bulk/remove", { policy: "send_mail", stop: "1", ...R }, "/jobs", /^Nothing has changed\./],
  ];

for (const [path, form, lands, says] of DONE)
  test(`after a form comes the page of what it was about, which says what it has done: ${path} ${Object.keys(form)}`, async (t) => {
    const it = await world(t);
    const body = new URLSearchParams({ ...form, form: tokenOf(new Date()) });
    const send = () => it.ui(new Request(HERE + path, { method: "POST", body, headers: HEADERS }));
    const answer = await send();
    t.is(answer.status, 303);
    const to = answer.headers.get("location")!;
    t.is(to.split("?")[0], lands);
    const done = await it.audit();
    const page = await it.text(to);
    t.regex(wordsOf(noticeIn(page)), says);
    t.is(noticeIn(await it.text(to)), noticeIn(page), "loaded again it does nothing, and says the same");
    const other = createUi({ pool: it.pool, authorize: () => ({ name: "bo", role: "operator" }) });
    t.is(noticeIn(await (await other(new Request(HERE + to))).text()), noticeIn(page), "by another process");
    const again = await other(new Request(HERE + path, { method: "POST", body, headers: HEADERS }));
    t.true([303, 200].includes(again.status));
    t.deepEqual(await it.audit(), done, "sent again it does nothing, at another process too");
    const viewers = createUi({ pool: it.pool, authorize: () => ({ name: "eve", role: "viewer" }) });
    t.notRegex(await (await viewers(new Request(HERE + to))).text(), />Undo</);
  });

/** What its first line says. */
const wordsOf = (notice: string) =>
  (/<p[^>]*>(.*?)<\/p>/s.exec(notice)?.[1] ?? "").replace(/<[^>]*>/g, "").replace(/( · Undo)+$/, "");

test("of two that send one form at the same time, one does it, and both say so", async (t) => {
  const it = await world(t);
  const form = { ...EP1, ...R, count: "1", form: tokenOf(new Date()) };
  const uis = [1, 2, 3].map(() =>
    createUi({ pool: it.pool, authorize: () => ({ name: "ana", role: "operator" }) }),
  );
  const pages = await Promise.all(
    uis.map(async (ui) => (await sent(ui, `${HERE}/act/admit`, new URLSearchParams(form))).text()),
  );
  for (const page of pages) t.regex(noticeIn(page), /Admitted 1 job of partition ep1/);
  t.is((await it.audit()).filter(({ verb }) => verb === "admit").length, 1);
});

test("an address that somebody made up claims nothing", async (t) => {
  const it = await world(t);
  for (const did of ["", "1", "x".repeat(31), tokenOf(new Date(0)), "__proto__", "a' or true"])
    t.is(
      noticeIn(
        await it.text(`/partition?policy=fetch_endpoint&partition=ep1&did=${encodeURIComponent(did)}`),
      ),
      "",
      did,
    );
  const made = tokenOf(new Date());
  t.regex(noticeIn(await it.text(`/policy?policy=fetch_endpoint&did=${made}`)), /Nothing has changed/);
  const forged = `changed=1&matched=1&stored=1&by=ana&did=${made}`;
  t.notRegex(noticeIn(await it.text(`/policy?policy=fetch_endpoint&${forged}`)), /class="good"|Undo|ana/);
  t.regex(await it.text(`/act/pause?policy=fetch_endpoint&${forged}`), /<form class="act"/);
  t.notRegex(
    await it.text(`/bulk/remove?policy=fetch_endpoint&step=1&seen=500&form=${made}`),
    /data-goes-on/,
  );
});

test("what was done is said for ten minutes", async (t) => {
  const it = await world(t);
  const token = tokenOf(new Date());
  await it.send("/act/pause", { ...EP1, ...R, form: token });
  const at = `/partition?policy=fetch_endpoint&partition=ep1&did=${token}`;
  const made = (minutes: number) =>
    table(it.pool, "audit").set(
      { at: new Date(Date.now() - minutes * 60_000) },
      { verb: "pause", by: "ana" },
    );
  await made(9);
  t.regex(noticeIn(await it.text(at)), /Paused/);
  await made(11);
  t.is(noticeIn(await it.text(at)), "");
});

test("a form that is too old says so, and offers a new one with what was filled in", async (t) => {
  const it = await world(t);
  const before = await it.audit();
  const hour = 3_600_000;
  for (const path of ["/act/pause", "/bulk/remove"]) {
    let page = "";
    for (const form of [tokenOf(new Date(Date.now() - hour - 60_000)), "made-up"]) {
      const answer = await it.send(path, { ...EP1, ...R, form });
      t.is(answer.status, 409);
      page = await answer.text();
      t.regex(page, /role="alert"[^>]*>Nothing was done: this form is more than an hour old\./);
      t.regex(page, /name="reason" value="incident 12"/);
      t.deepEqual(await it.audit(), before);
    }
    const fresh = /name="form" value="([^"]+)"/.exec(page)![1]!;
    t.is((await it.send(path, { ...EP1, ...R, form: fresh })).status, 200);
    before.push((await it.audit()).at(-1));
  }
});

test("what somebody else has done to it since the form was made, the form says, and does nothing", async (t) => {
  const it = await world(t);
  const formOf = async (path: string) => /name="form" value="([^"]+)"/.exec(await it.text(path))?.[1] ?? "";
  const limit = { policy: "fetch_endpoint", gate: "account", key: "acme" };
  const cases = [
    [
      "pause",
      EP1,
      () => it.utils.hold({ ...EP1, forMs: 60_000, reason: "it burns", by: "bo" }),
      /bo was faster, with hold at .*: it burns/,
    ],
    [
      "resume",
      { policy: "send_mail" },
      () => it.utils.pause({ policy: "send_mail", by: "bo" }),
      /bo was faster, with pause/,
    ],
    [
      "set-limit",
      { ...limit, max: "3" },
      () => it.utils.setLimit({ ...limit, set: { max: 1 }, by: "bo" }),
      /bo was faster, with set_limit/,
    ],
  ] as [string, Record<string, string>, () => Promise<unknown>, RegExp][];
  for (const [verb, given, meanwhile, says] of cases) {
    const form = await formOf(`/act/${verb}?${new URLSearchParams(given)}`);
    await meanwhile();
    const before = await it.audit();
    const answer = await it.send(`/act/${verb}`, { ...given, ...R, form });
    t.is(answer.status, 409, verb);
    t.regex(await answer.text(), says);
    t.deepEqual(await it.audit(), before);
  }
  // what concerns another partition, or the whole policy, is no reason
  const form = await formOf("/act/pause?policy=fetch_endpoint&partition=ep2");
  await it.utils.pause({ policy: "fetch_endpoint", by: "bo" });
  t.is((await it.send("/act/pause", { policy: "fetch_endpoint", partition: "ep2", ...R, form })).status, 200);
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
  const form = { ...EP1, ...R };
  const answer = await it.send("/bulk/move", form);
  t.is(answer.status, 400);
  t.regex(
    await answer.text(),
    /<h1>Move all that match<.*<strong>3 jobs<\/strong>.*Say where the jobs go.*value="incident 12" required/s,
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
