import type { Staff } from "../create-ui.ts";
import type { Database } from "../database.ts";
import type { Trail } from "../parts/layout.ts";
import type { Markup } from "../parts/markup.ts";
import type { Replays } from "../replays.ts";
import type { TraceUrl } from "../trace-url.ts";

/** What a sender who sees all may do, whoever it is. */
export type Rights = Pick<Staff, "role">;

/**
 * One request of a page that only looks. It does not know who asks: all who have the same rights may get the page that was
 * made for one of them.
 */
export interface Visit extends Database {
  readonly base: string;
  readonly rights: Rights;
  readonly showPayloads: boolean;
  readonly traceUrl: TraceUrl | undefined;
  readonly query: URLSearchParams;
}

/** A form that was sent. */
export interface Sent extends Visit {
  readonly replays: Replays;
  /** The sender's name, for the audit. */
  readonly by: string;
  readonly form: URLSearchParams;
}

/** Where the page is that says what a form has done. Loading it again does nothing. */
export interface SeeOther {
  readonly seeOther: string;
}

/** A page without its frame. Null: there is no such policy, partition or job. */
export type Found = SeeOther | Content | null;

interface Content {
  readonly title: string;
  readonly body: Markup;
  /** Default: 200. */
  readonly status?: 400 | 403 | 409;
  /** The pages above it, the outermost first. Default: none. */
  readonly trail?: Trail;
  /** What was searched for, for the field in the frame. */
  readonly asked?: string;
  /** It is not read again by itself. */
  readonly isLive?: false;
}

/** Makes a page. */
export type Page = (visit: Visit) => Promise<Found>;

/** Does what a form asks. */
export type Act = (sent: Sent) => Promise<Found>;

/** What the address says, without what is empty. */
export function asked(query: URLSearchParams, name: string): string | undefined {
  return query.get(name) || undefined;
}
