// node bench/report/chart.ts FIGURES.json CHART.svg
// Draws the ratios of a run, each against its target: a bar past the line is a target met. The thin line goes from the
// least to the greatest of the runs.
import { readFileSync, writeFileSync } from "node:fs";
import type { Summary } from "../harness/statistics.ts";

interface Figure {
  readonly target: { readonly atLeast: number } | { readonly atMost: number };
  readonly ratio: Summary;
}

const ROW = 30;
const LABEL = 170;
const SCALE = 190;
const MOST = 2.4;
const WIDTH = LABEL + SCALE * MOST + 110;

const [source, drawing] = process.argv.slice(2);
if (!source || !drawing) throw new Error("node bench/report/chart.ts FIGURES.json CHART.svg");
const { ratios, figures } = JSON.parse(readFileSync(source, "utf8"));
writeFileSync(drawing, chart(Object.keys(ratios).map((name) => ({ name, ...(figures[name] as Figure) }))));

function chart(rows: ({ name: string } & Figure)[]): string {
  const height = rows.length * ROW + 40;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="13">
<title>The ratios of a run, each against its target</title>
<rect width="100%" height="100%" fill="#fff"/>
${rows.map(bar).join("\n")}
<line x1="${x(1)}" x2="${x(1)}" y1="8" y2="${height - 26}" stroke="#333" stroke-dasharray="4 3"/>
<text x="${x(1)}" y="${height - 9}" text-anchor="middle" fill="#333">target</text>
</svg>
`;
}

function bar({ name, target, ratio }: { name: string } & Figure, row: number): string {
  const reached = (value: number) => ("atLeast" in target ? value / target.atLeast : target.atMost / value);
  const y = row * ROW + 12;
  const middle = y + ROW / 2 - 4;
  const end = Math.min(reached(ratio.median), MOST);
  const [from, to] = [ratio.min, ratio.max].map((value) => x(Math.min(reached(value), MOST)));
  const wanted = "atLeast" in target ? `≥ ${target.atLeast}` : `≤ ${target.atMost}`;
  return `<text x="${LABEL - 8}" y="${middle + 5}" text-anchor="end" fill="#333">${name}</text>
<rect x="${LABEL}" y="${y}" width="${x(end) - LABEL}" height="${ROW - 8}" fill="${end >= 1 ? "#4a9d6a" : "#c9883a"}"/>
<line x1="${from}" x2="${to}" y1="${middle}" y2="${middle}" stroke="#333"/>
<text x="${WIDTH - 8}" y="${middle + 5}" text-anchor="end" fill="#333">${ratio.median.toFixed(2)} (${wanted})</text>`;
}

function x(value: number): number {
  return Math.round(LABEL + value * SCALE);
}
