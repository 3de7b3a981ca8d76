// Who may ask for what: every role, every path and every method.
import test from "ava";
import { ACTION_PAGES } from "../../src/ui/pages/action.ts";
import { BULK_PAGES } from "../../src/ui/pages/bulk.ts";
import { PAGES } from "../../src/ui/pages/pages.ts";
import { TICKED_PAGES } from "../../src/ui/pages/ticked.ts";
import { createUi, type Viewer } from "../../src/ui/ui.ts";
import { HERE, world } from "./world.ts";

type Role = Viewer["role"] | "nobody";

const VIEWERS: Readonly<Record<Role, Viewer | null>> = {
  nobody: null,
  viewer: { name: "eve", role: "viewer" },
  operator: { name: "ana", role: "operator" },
  tenant: { name: "ida", role: "tenant", partitions: { fetch_endpoint: ["ep1"] } },
};
/** All that a tenant may ask for. Whoever adds a page leaves this list as it is, unless the page was made for tenants. */
const FOR_TENANTS = ["/", "/partition", "/job"];
const ASSETS = ["/assets/style.css", "/assets/live.js", "/assets/idiomorph.js"];
const ACTS = { ...ACTION_PAGES, ...BULK_PAGES, ...TICKED_PAGES };
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

function answers(role: Role, method: string, path: string): number {
  const isAct = path in ACTS;
  if (role === "nobody") return 401;
  if (method === "POST") return role === "operator" ? (isAct ? 200 : 404) : 403;
  if (method !== "GET" && method !== "HEAD") return role === "operator" ? 404 : 403;
  if (ASSETS.includes(path)) return 200;
  if (role === "tenant") return FOR_TENANTS.includes(path) ? 200 : 404;
  return path in PAGES || isAct ? 200 : 404;
}

test("each role gets what it may, at every path and by every method", async (t) => {
  const it = await world(t);
  const before = await it.audit();
  const [grouped] = await it.utils.addJobs([{ identifier: "make_report", payload: { tenant: "a" } }], false, {
    then: { identifier: "make_report", payload: { tenant: "b" } },
  });
  // what each page and each form needs; without a reason no form changes anything
  const query = new URLSearchParams({
    policy: "fetch_endpoint",
    partition: "ep1",
    id: it.first,
    ids: it.first,
    at: '["fetch_endpoint","ep1"]',
    group: (grouped as { groupId: string }).groupId,
  });
  for (const [name, value] of [
    ["gate", "account"],
    ["key", "acme"],
  ] as const)
    query.set(name, value);
  const paths = [
    ...Object.keys(PAGES),
    ...Object.keys(ACTS),
    ...ASSETS,
    "/nothing",
    "/act/drop",
    "/bulk/pause",
  ];
  t.true(paths.length > 25);
  const wrong: string[] = [];
  for (const [role, viewer] of Object.entries(VIEWERS)) {
    const ui = createUi({ pool: it.pool, authorize: () => viewer });
    for (const method of METHODS)
      for (const path of paths) {
        const hasBody = !["GET", "HEAD"].includes(method);
        const request = new Request(`${HERE}${path}?${query}`, {
          method,
          headers: { "sec-fetch-site": "same-origin" },
          ...(hasBody ? { body: query } : {}),
        });
        const { status } = await ui(request);
        const wanted = answers(role as Role, method, path);
        if (status !== wanted) wrong.push(`${role}: ${method} ${path} answers ${status}, not ${wanted}`);
      }
  }
  t.deepEqual(wrong, []);
  t.deepEqual(await it.audit(), before);
});
