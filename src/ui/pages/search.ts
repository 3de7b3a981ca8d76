import { keyInWords } from "../../operate/gate-words.ts";
import { search as find, type SearchHit } from "../../operate/search.ts";
import { badge, jobBadge, reasonBadge } from "../parts/badge.ts";
import { partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import type { Page } from "./visit.ts";

/** Ranks up to this are what was asked for, and up to the next what reads like it. */
const [EXACT, ALIKE] = [3, 4];

/** What a word leads to. What nothing else reads like is shown itself. */
export const search: Page = async ({ looking, base, query }) => {
  const text = query.get("q") ?? "";
  const frame = { title: "Search", asked: text, isLive: false } as const;
  if (text === "") return { ...frame, body: ABOUT };
  const { hits, more } = await find(looking, { query: text });
  const [first, second] = hits.filter(({ rank }) => rank <= ALIKE);
  if (first && first.rank <= EXACT && !second) return { seeOther: pathOf(first, base) };
  return {
    ...frame,
    body: html`${hits.length === 0 ? html`<p>Nothing matches <strong>${keyInWords(text)}</strong>. A job that has ended is gone, unless its policy keeps a history.</p>${ABOUT}` : hitTable(hits, base)}
${more === null ? none : html`<p>More may match: ${more}.</p>`}`,
  };
};

const ABOUT = html`<p class="empty">It finds jobs by their id or job key, partitions by their key or a value of their context, such as a customer, policies, and errors by a part of their text. A slip of one character, other capitals and blanks do not matter.</p>`;

function pathOf({ kind, policy, partition, jobId, state }: SearchHit, base: string): string {
  if (kind === "policy") return pathTo(base, "/policy", { policy });
  if (kind !== "partition") return pathTo(base, "/job", { id: jobId });
  // why it waits is known of a policy that is declared
  return pathTo(base, state === "undeclared" ? "/jobs" : "/partition", { policy, partition });
}

function hitTable(hits: readonly SearchHit[], base: string): Markup {
  return table(
    "The best first; ␠ is a blank",
    hits,
    [
      { title: "What", cell: ({ kind }) => kind },
      {
        title: "Found",
        cell: (hit) => html`<a href="${pathOf(hit, base)}">${nameOf(hit)}</a>`,
      },
      { title: "By", cell: (hit) => byOf(hit, base) },
      {
        title: "Policy",
        cell: ({ kind, policy }) => (kind === "policy" || policy === null ? null : policyLink(base, policy)),
      },
      {
        title: "Partition",
        cell: ({ jobId, policy, partition }) =>
          jobId === null || policy === null || partition === null
            ? null
            : partitionLink(base, policy, partition),
      },
      { title: "State", cell: stateOf },
      { title: "Note", cell: ({ note }) => note },
    ],
    "",
  );
}

function nameOf({ kind, policy, partition, jobId }: SearchHit): string {
  return (kind === "policy" ? policy : kind === "partition" ? keyInWords(partition) : jobId) ?? "";
}

/** What it was found by, if that is not its name. Of an error, it leads to all jobs that have it. */
function byOf(hit: SearchHit, base: string): Markup | string | null {
  const { kind, policy, partition, jobId, matched } = hit;
  if (kind === "error")
    return html`<a href="${pathTo(base, "/jobs", { policy, error: matched })}">${matched}</a>`;
  return [policy, partition, jobId][["policy", "partition", "job"].indexOf(kind)] === matched
    ? null
    : keyInWords(matched);
}

const WORDS: Readonly<Record<string, string>> = {
  idle: "no job waits",
  waiting: "waits",
  undeclared: "nobody declared its policy",
};

function stateOf({ kind, state }: SearchHit): Markup | string | null {
  if (kind === "policy") return badge(state, state === "on" ? "good" : "bad");
  return kind === "partition" ? (WORDS[state] ?? reasonBadge(state)) : jobBadge(state);
}
