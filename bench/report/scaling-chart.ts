// node bench/report/scaling-chart.ts FIGURES.json CHART.svg
// Draws what the study "scaling" has found: one line for each kind of rounds, plain and governed. Both axes of a panel are
// logarithmic, because workers and connections double.
import { readFileSync, writeFileSync } from "node:fs";
import type { Adding, Draining } from "../studies/scaling.ts";

interface Line {
  readonly name: string;
  readonly dashed: boolean;
  readonly color: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

interface Panel {
  readonly title: string;
  readonly lines: readonly Line[];
}

const WIDTH = 400;
const HEIGHT = 300;
const PAD = { left: 52, right: 14, top: 34, bottom: 88 };
const COLORS = { plain: "#c9883a", governed: "#2f6fab" };

const [source, drawing] = process.argv.slice(2);
if (!source || !drawing) throw new Error("node bench/report/scaling-chart.ts FIGURES.json CHART.svg");
const { workers, producers } = JSON.parse(readFileSync(source, "utf8")).figures.scaling;
writeFileSync(
  drawing,
  chart([
    { title: "jobs a second, by worker processes", lines: sides((side) => drains(workers[side])) },
    { title: "adds a second, by connections", lines: sides((side) => adds(producers[side])) },
  ]),
);

type Kind = Pick<Line, "name" | "points">;

/** The first kind of each side is dashed. */
function sides(kindsOf: (side: keyof typeof COLORS) => readonly Kind[]): Line[] {
  return (["plain", "governed"] as const).flatMap((side) =>
    kindsOf(side).map(({ name, points }, n) => ({
      ...{ name: `${side}, ${name}`, points, dashed: n === 0, color: COLORS[side] },
    })),
  );
}

function drains(all: readonly Draining[]): Kind[] {
  return [0, 20].map((ms) => ({
    name: `jobs of ${ms} ms`,
    points: all.filter((one) => one.ms === ms).map((one) => [one.workers, one.pace] as const),
  }));
}

function adds(all: readonly Adding[]): Kind[] {
  return (["a worker listens", "none sent"] as const).map((kind) => ({
    name: kind === "none sent" ? "without notifications" : kind,
    points: all
      .filter((one) => one.notifications === kind)
      .map((one) => [one.connections, one.pace] as const),
  }));
}

function chart(panels: readonly Panel[]): string {
  const width = WIDTH * panels.length;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${HEIGHT}" viewBox="0 0 ${width} ${HEIGHT}" font-family="sans-serif" font-size="12">
<title>${panels.map(({ title }) => title).join("; ")}</title>
<rect width="100%" height="100%" fill="#fff"/>
${panels.map((panel, n) => `<g transform="translate(${n * WIDTH} 0)">\n${draw(panel)}\n</g>`).join("\n")}
</svg>
`;
}

function draw({ title, lines }: Panel): string {
  const points = lines.flatMap(({ points }) => points);
  const x = scale([...new Set(points.map(([x]) => x))], PAD.left, WIDTH - PAD.right);
  const y = scale(ticksOf(points.map(([, y]) => y)), HEIGHT - PAD.bottom, PAD.top);
  return [
    `<text x="${PAD.left}" y="20" fill="#333" font-weight="bold">${title}</text>`,
    ...x.ticks.map(
      (at) =>
        `<text x="${x.of(at)}" y="${HEIGHT - PAD.bottom + 16}" text-anchor="middle" fill="#555">${at}</text>`,
    ),
    ...y.ticks.map(
      (at) =>
        `<line x1="${PAD.left}" x2="${WIDTH - PAD.right}" y1="${y.of(at)}" y2="${y.of(at)}" stroke="#ddd"/><text x="${PAD.left - 6}" y="${y.of(at) + 4}" text-anchor="end" fill="#555">${at.toLocaleString("en")}</text>`,
    ),
    ...lines.map(
      ({ points, color, dashed }) =>
        `<polyline points="${points.map(([px, py]) => `${x.of(px)},${y.of(py)}`).join(" ")}" fill="none" stroke="${color}" stroke-width="2"${dash(dashed)}/>`,
    ),
    ...lines.map(({ name, color, dashed }, n) => {
      const top = HEIGHT - PAD.bottom + 34 + n * 15;
      return `<line x1="${PAD.left}" x2="${PAD.left + 24}" y1="${top - 4}" y2="${top - 4}" stroke="${color}" stroke-width="2"${dash(dashed)}/><text x="${PAD.left + 30}" y="${top}" fill="#333">${name}</text>`;
    }),
  ].join("\n");
}

function dash(dashed: boolean): string {
  return dashed ? ' stroke-dasharray="5 3"' : "";
}

/** Whole powers of two of a hundred around these figures. */
function ticksOf(figures: readonly number[]): number[] {
  const from = Math.floor(Math.log2(Math.min(...figures) / 100));
  const to = Math.ceil(Math.log2(Math.max(...figures) / 100));
  return Array.from({ length: to - from + 1 }, (_, n) => 100 * 2 ** (from + n));
}

function scale(ticks: readonly number[], from: number, to: number) {
  const [least, most] = [Math.log(Math.min(...ticks)), Math.log(Math.max(...ticks))];
  const of = (value: number) => Math.round(from + ((Math.log(value) - least) / (most - least)) * (to - from));
  return { ticks, of };
}
