// The pages over a database at three in the morning.
import type { ExecutionContext } from "ava";
import { tokenOf } from "../../src/ui/pages/one-time.ts";
import { createUi, type UiOptions, type Viewer } from "../../src/ui/ui.ts";
import { world as database } from "../cli/world.ts";

/** Of the pages. The test names the database. */
export type Options = Partial<Omit<UiOptions, "pool" | "preset">>;
export const HERE = "http://127.0.0.1:4180";

/** Of all pages; `job` is the id of a job. */
export function paths(job: string): readonly string[] {
  const acts = [
    "set-limit?policy=send_mail",
    "remove?policy=fetch_endpoint&partition=ep3",
    "admit?policy=send_mail",
  ];
  return [
    ...["/", "/policies", "/policy?policy=fetch_endpoint", "/partitions", "/jobs", "/limits", "/workers"],
    ...[
      "/groups",
      "/search?q=ep",
      "/audit",
      "/health",
      "/partition?policy=fetch_endpoint&partition=ep1",
      `/job?id=${job}`,
    ],
    ...acts.map((act) => `/act/${act}`),
  ];
}

/** Sends a form as a browser does from a page of the same origin that was just made, and goes on to the page that says what was done. */
export async function sent(
  ui: (request: Request) => Promise<Response>,
  to: string,
  body: URLSearchParams,
  headers: Record<string, string> = { "sec-fetch-site": "same-origin" },
): Promise<Response> {
  if (!body.has("form")) body.set("form", tokenOf(new Date()));
  const answer = await ui(new Request(to, { method: "POST", body, headers }));
  return answer.status === 303 ? ui(new Request(HERE + answer.headers.get("location"), { headers })) : answer;
}

export async function world(t: ExecutionContext, options: Options & { viewer?: Viewer } = {}) {
  const it = await database(t);
  const { viewer = { name: "ana", role: "operator" }, ...rest } = options;
  const ui = createUi({ pool: it.pool, authorize: () => viewer, ...rest });
  return {
    ...it,
    ui,
    get: (path: string, headers: Record<string, string> = {}) => ui(new Request(HERE + path, { headers })),
    text: async (path: string) => (await ui(new Request(HERE + path))).text(),
    /** Sends a form, as a browser does from a page of the same origin. */
    send: (
      path: string,
      form: Record<string, string>,
      headers: Record<string, string> = { "sec-fetch-site": "same-origin" },
    ) => sent(ui, HERE + path, new URLSearchParams(form), headers),
    audit: async () =>
      (
        await it.pool.query(
          "select verb, policy, partition, by, reason from dispatch_policy.audit order by id",
        )
      ).rows,
  };
}

/** What the cells of the table say that stands first below a heading, row by row. */
export function cellsOf(page: string, heading: string): readonly (readonly string[])[] {
  const [, section] = page.split(`${heading}</h2>`);
  if (section === undefined) throw new Error(`the page has no heading "${heading}"`);
  const rows = section.split("</tbody>")[0]?.split("<tr>").slice(2) ?? [];
  return rows.map((row) =>
    [...row.matchAll(/<td[^>]*>(.*?)<\/td>/gs)].map(([, cell]) => cell!.replace(/<[^>]*>/g, "")),
  );
}
