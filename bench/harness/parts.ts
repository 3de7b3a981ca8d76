// What is measured apart from the ratios, each by a flag of its own.

import { columns, short } from "../report/report.ts";
import { type Backlog, measureBacklog } from "../studies/backlog.ts";
import { type Bloat, measureBloat } from "../studies/bloat.ts";
import { measureFairness, type Shares } from "../studies/fairness.ts";
import { measureLimits } from "../studies/limits.ts";
import { measureSoak } from "../studies/soak.ts";
import type { FairBy } from "./jobs.ts";
import type { Heard } from "./load.ts";
import type { SideName } from "./sides.ts";
import type { Sizes } from "./sizes.ts";

export interface Part {
  readonly text: string;
  readonly figures: object;
}

export const PARTS = { backlog, bloat, fairness, limits, soak } as const satisfies Record<
  string,
  (sizes: Sizes) => Promise<Part>
>;

export type PartName = keyof typeof PARTS;

const SIDES: readonly SideName[] = ["plain", "governed"];
const HEARD = ["jobs/s", "started", "p50 ms", "p99 ms"];

async function backlog({ backlog: size }: Sizes): Promise<Part> {
  const found: Record<SideName, Backlog[]> = { plain: [], governed: [] };
  const rows: string[][] = [];
  for (const name of SIDES) {
    for (const waiting of size.waiting) {
      console.error(`# backlog: ${name}, ${waiting}`);
      const one = await measureBacklog(name, waiting, size);
      found[name].push(one);
      rows.push([name, ...[one.waiting, one.pace, one.p50, one.p99].map(short)]);
    }
  }
  const text = columns([["side", "waiting", "jobs/s", "urgent p50 ms", "p99 ms"], ...rows]);
  return { text, figures: { ...found, settings: size } };
}

async function bloat({ bloat: size }: Sizes): Promise<Part> {
  const found: Partial<Record<SideName, Bloat>> = {};
  const rows: string[][] = [];
  for (const name of SIDES) {
    console.error(`# bloat: ${name}, ${short(size.jobs)} jobs`);
    const one = await measureBloat(name, size);
    found[name] = one;
    for (const [whose, { size, deadRows, vacuums }] of Object.entries(one.tables))
      rows.push([name, short(one.pace), whose, ...[size, deadRows, vacuums].map(short)]);
  }
  const text = columns([["side", "jobs/s", "tables", "MiB", "dead rows", "autovacuums"], ...rows]);
  return { text, figures: { ...found, settings: size } };
}

async function fairness({ fairness: size }: Sizes): Promise<Part> {
  const found: Record<FairBy, Shares[]> = { jobs: [], work: [] };
  for (const by of Object.keys(found) as FairBy[]) {
    console.error(`# fairness: by ${by}`);
    found[by] = await measureFairness(by, size);
  }
  const percent = (part: number) => (part * 100).toFixed(1);
  const rows = Object.entries(found).flatMap(([by, shares]) =>
    shares.map(({ tenant, ms, jobs, share, least, most }) => [
      ...[by, tenant, short(ms), short(jobs)],
      ...[share, least, most].map(percent),
    ]),
  );
  const text = columns([["by", "tenant", "job ms", "jobs", "% of time", "least", "most"], ...rows]);
  return { text, figures: { ...found, settings: size } };
}

async function limits(sizes: Sizes): Promise<Part> {
  const tables: string[] = [];
  const figures: Record<string, object> = {};
  for (const name of SIDES) {
    console.error(`# limits: ${name}`);
    const found = await measureLimits(name, sizes.limits);
    figures[name] = found;
    const rows = found.steps.map((step) => [name, ...heard(step)]);
    tables.push(`${columns([["side", ...HEARD], ...rows])}\nknee: ${short(found.knee)} jobs/s`);
  }
  return { text: tables.join("\n\n"), figures: { ...figures, settings: sizes.limits } };
}

async function soak(sizes: Sizes): Promise<Part> {
  console.error("# soak: looking for the knee");
  const { knee } = await measureLimits("governed", sizes.limits);
  console.error(`# soak: at ${sizes.soak.part} of ${short(knee)} jobs/s`);
  const minutes = await measureSoak(knee, sizes.soak);
  const rows = minutes.map((minute, n) => [
    String(n + 1),
    ...heard(minute),
    ...[minute.memory, minute.tables, minute.deadRows].map(short),
  ]);
  const text = columns([["minute", ...HEARD, "worker MiB", "tables MiB", "dead rows"], ...rows]);
  return { text, figures: { knee, minutes, settings: sizes.soak } };
}

function heard({ rate, kept, p50, p99 }: Heard): string[] {
  return [short(rate), `${(kept * 100).toFixed(1)} %`, short(p50), short(p99)];
}
