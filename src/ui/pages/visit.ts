import type { Viewer } from "../create-ui.ts";
import type { Database } from "../database.ts";
import type { Markup } from "../parts/markup.ts";

/** One request of a page. */
export interface Visit extends Database {
  readonly base: string;
  readonly viewer: Viewer;
  readonly showPayloads: boolean;
  readonly url: URL;
  readonly query: URLSearchParams;
  /** Of a form that was sent; otherwise empty. */
  readonly form: URLSearchParams;
}

/** Makes the page. Null: there is no such policy, partition or job. */
export type Page = (visit: Visit) => Promise<{ readonly title: string; readonly body: Markup } | null>;

/** What the address says, without what is empty. */
export function asked(query: URLSearchParams, name: string): string | undefined {
  return query.get(name) || undefined;
}
