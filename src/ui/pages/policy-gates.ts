import { limitInWords, numbersOf, OVER } from "../../operate/gate-words.ts";
import type { Override } from "../../operate/limits.ts";
import { limitedBy } from "../../operate/words.ts";
import { gauge } from "../parts/gauge.ts";
import { pathTo } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped, lasting, moment } from "../parts/words.ts";
import type { Figures, Shown } from "./figures.ts";
import type { Gate } from "./form.ts";
import type { Visit } from "./visit.ts";

/** A row of the view `limiters`. */
export interface Limiter {
  readonly gate: string;
  readonly available: number | null;
  readonly inFlight: number;
  readonly max: number | null;
  readonly capacity: number | null;
}

export interface Gates {
  readonly visit: Visit;
  readonly name: string;
  readonly figures: Figures;
  /** The limiters of gates that count over the whole policy. */
  readonly shared: readonly Limiter[];
  /** What operators set. */
  readonly set: readonly Override[];
  readonly gates: readonly Gate[];
}

/** Each gate with its own numbers, what was set instead, and how full it is: of its keys the fullest. */
export function gateTable({ visit, name, figures, shared, set, gates }: Gates): Markup {
  const { base, rights } = visit;
  const figure = (what: Shown, gate: string) => figures.sum(what, { gate });
  const hasAdaptive = gates.some(({ kind }) => kind === "adaptive_concurrency");
  return table(
    "Its numbers, what operators set instead, and how full it is",
    gates,
    [
      {
        title: "Gate",
        cell: ({ name: gate, constants, shared: isShared }) =>
          isShared && gate !== name
            ? html`<a href="${pathTo(base, "/policy", { policy: gate })}">${gate}</a>, shared`
            : `${gate}${constants.shadow ? " (shadow)" : ""}`,
      },
      { title: "Kind", cell: ({ kind }) => kind.replace("_", " ") },
      { title: "Counts over", cell: ({ scope }) => OVER[scope] },
      { title: "Own numbers", cell: ({ values }) => numbersOf(values, lasting) },
      { title: "Set instead", cell: ({ name: gate }) => setInWords(set.filter((one) => one.gate === gate)) },
      {
        title: "In use",
        cell: ({ name: gate, scope }) =>
          useInWords(
            scope === "policy" ? shared.find((one) => one.gate === gate) : undefined,
            figure("limiter_utilization_ratio", gate),
          ),
      },
      {
        title: "Full keys",
        isNumber: true,
        cell: ({ name: gate }) => grouped(figure("full_limiters", gate)),
      },
      ...(hasAdaptive
        ? [
            {
              ...{ title: "Least limit learnt", isNumber: true },
              cell: ({ name: gate }: Gate) => grouped(figure("adaptive_limit", gate)),
            },
          ]
        : []),
      ...(rights.role === "operator"
        ? [
            {
              title: "Change",
              cell: ({ name: gate, shared: isShared }: Gate) =>
                html`<a href="${pathTo(base, "/act/set-limit", { policy: isShared ? gate : name, gate })}" class="whole" aria-label="Change limit… of ${gate}">Change limit…</a>`,
            },
          ]
        : []),
    ],
    "It has no gate: its jobs go as fast as workers take them.",
  );
}

/** Over the whole policy what is left. Over keys how full the fullest is. */
function useInWords(limiter: Limiter | undefined, fullest: number | null): Markup | string {
  if (limiter) {
    const of = limiter.max ?? limiter.capacity;
    if (limiter.available === null || of === null) return `${grouped(limiter.inFlight)} in flight, no bound`;
    return html`${gauge(of - limiter.available, of)}${grouped(limiter.available)} of ${grouped(of)} left`;
  }
  if (fullest === null) return "–";
  return html`${gauge(fullest, 1)}<span class="whole">the fullest key ${grouped(Math.round(fullest * 100))} %</span>`;
}

/** The first, and how many more. */
function setInWords([first, ...others]: readonly Override[]): Markup | string {
  if (!first) return "–";
  const { override, by, until } = first;
  return html`${limitInWords(override)} for ${limitedBy(first)}, by ${by ?? "somebody"}${until ? html`, until ${moment(until)}` : ""}${
    others.length > 0 ? `, and ${grouped(others.length)} more` : ""
  }`;
}
