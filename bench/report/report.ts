import { ratioOf } from "../harness/pairs.ts";
import { isMet, type Result } from "../harness/ratio.ts";
import type { Sizes } from "../harness/sizes.ts";
import { type Summary, summary } from "../harness/statistics.ts";
import type { Usage } from "../harness/usage.ts";
import { RATIOS } from "../ratios/index.ts";

const COLUMNS = ["ratio", "median", "min", "max", "target", "met", "runs", "subject", "baseline", ""];

/** The ratios with their targets, and the figures they are of: medians, and from where to where. Then the use per job. */
export function table(results: readonly Result[]): string {
  const uses = results.flatMap(usesOf);
  return [
    columns([COLUMNS, ...results.map(row)]),
    ...(uses.length > 0 ? [columns([USES, ...uses])] : []),
  ].join("\n\n");
}

const USES = ["per job", "side", "server ms", "worker ms", "WAL bytes", "statements"];

function usesOf({ ratio, pairs: { perJob } }: Result): string[][] {
  const line = (side: string, { serverMs, workerMs, walBytes, statements }: Usage) => [
    ...[ratio.name, side],
    ...[serverMs, workerMs, walBytes, statements].map((figure) =>
      figure === undefined ? "" : short(figure),
    ),
  ];
  return perJob ? [line("governed", perJob.subject), line("plain", perJob.baseline)] : [];
}

export function columns(rows: readonly string[][]): string {
  const widths =
    rows[0]?.map((_, column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0))) ?? [];
  return rows
    .map((cells) =>
      cells
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

function row({ ratio, pairs }: Result): string[] {
  const { median, min, max, runs } = ratioOf(pairs);
  return [
    ratio.name,
    ...[median, min, max].map((value) => value.toFixed(2)),
    "atLeast" in ratio.target ? `≥ ${ratio.target.atLeast}` : `≤ ${ratio.target.atMost}`,
    isMet(ratio, median) ? "yes" : "no",
    String(runs),
    range(summary(pairs.subject)),
    range(summary(pairs.baseline)),
    ratio.unit,
  ];
}

function range({ median, min, max }: Summary): string {
  return `${short(median)} (${short(min)}–${short(max)})`;
}

/** A verdict, as tables show it; undefined: there is no target. */
export function met(isMet: boolean | undefined): string {
  return isMet === undefined ? "-" : isMet ? "met" : "missed";
}

export function short(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
}

/** Plain numbers under `ratios`, everything else under `figures`. */
export function json(results: readonly Result[], sizes: Sizes): { ratios: object; figures: object } {
  const main = results.filter(({ ratio }) => RATIOS.includes(ratio));
  return {
    ratios: Object.fromEntries(main.map(({ ratio, pairs }) => [ratio.name, ratioOf(pairs).median])),
    figures: Object.fromEntries(results.map((result) => [result.ratio.name, figures(result, sizes)])),
  };
}

function figures({ ratio, pairs, seconds }: Result, sizes: Sizes): object {
  const ratios = ratioOf(pairs);
  return {
    what: ratio.what,
    unit: ratio.unit,
    target: ratio.target,
    met: isMet(ratio, ratios.median),
    ratio: ratios,
    subject: summary(pairs.subject),
    baseline: summary(pairs.baseline),
    settings: { ...ratio.settings, ...sizes[ratio.size] },
    perJob: pairs.perJob,
    pairs: { subject: pairs.subject, baseline: pairs.baseline },
    seconds,
  };
}
