import type { OperateContext } from "./call.ts";
import { checkVerb } from "./verb.ts";
import { rowsBy } from "./view-rows.ts";

/** What to look for. */
export interface SearchQuery {
  /**
   * The id of a job, staged or Graphile Worker's; a job key; the key of a partition; a value of its context; the name of a
   * policy; or a part of an error.
   */
  query: string;
  /** At most so many of each kind, 1 to 100. Default 20. */
  max?: number | undefined;
}

/** What a text leads to. */
export interface SearchHit {
  kind: "policy" | "partition" | "job" | "error";
  policy: string | null;
  /** The partition's key. */
  partition: string | null;
  /** Of a job, and of the last job that has an error. */
  jobId: string | null;
  /**
   * Of a policy: `on`, `off`, `paused` or `undeclared`. Of a partition: the reason why it waits or is stopped, else `waiting`,
   * `idle` (no job waits) or `undeclared` (as its policy). Of a job: as in the view `jobs`; of one that has ended, its outcome.
   */
  state: string;
  /** The text by which it was found. */
  matched: string;
  /** How a near match differs, or how many jobs have the error; null: there is nothing to add. */
  note: string | null;
  /**
   * How well it fits. 1: the id of a job. 2: the key of a partition, or the name of a policy. 3: the job key. 4: one of these
   * but for blanks at its ends, capitals or its form in Unicode. 5: its beginning. 6: a value of the context. 7: a part. 8: one
   * character more, less or another, or two that are swapped.
   */
  rank: number;
}

/** What was found. */
export interface SearchResult {
  /** The best first. */
  hits: readonly SearchHit[];
  /** Why more may match; null: that is all. */
  more: string | null;
}

type Row = Omit<SearchHit, "kind"> & { readonly kind: SearchHit["kind"] | "more" };

/** Documented at {@link Operate.search}. */
export async function search(context: OperateContext, options: SearchQuery): Promise<SearchResult> {
  checkVerb("search", options, { needs: ["query"], takes: ["max"] });
  const { query, max } = options;
  const rows = await rowsBy<Row>(context, (client) => context.engine.call(client, "search", { query, max }));
  const isHit = (row: Row): row is SearchHit => row.kind !== "more";
  return { hits: rows.filter(isHit), more: rows.find((row) => !isHit(row))?.note ?? null };
}
