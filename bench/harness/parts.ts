// What is measured apart from the ratios, each by a flag of its own.

import { aheadTable, crowdTable, judgeAhead, judgeCrowd } from "../report/ahead.ts";
import { columns, met, short } from "../report/report.ts";
import { producersTable, workersTable } from "../report/scaling.ts";
import { ADOPTERS, type Adoption, measureAdoption } from "../studies/adoption.ts";
import { CROWDS, type CrowdWaits, measureAhead, measureCrowd, type Waits } from "../studies/ahead.ts";
import { type Backlog, measureBacklog } from "../studies/backlog.ts";
import { type Bloat, measureBloat } from "../studies/bloat.ts";
import { type Drilled, LIMIT_MS, measureDrill } from "../studies/drill.ts";
import { type Estimated, measureEstimate } from "../studies/estimate.ts";
import { measureFairness, type Shares } from "../studies/fairness.ts";
import { measureLimits } from "../studies/limits.ts";
import { measureOpen } from "../studies/open.ts";
import { measureRollout, type Rollout } from "../studies/rollout.ts";
import {
  type Adding,
  type Draining,
  measureProducers,
  measureWorkers,
  NOTIFICATIONS,
} from "../studies/scaling.ts";
import { measureSoak } from "../studies/soak.ts";
import { CAP, type FairBy, WAITS } from "./jobs.ts";
import type { Heard } from "./load.ts";
import type { SideName } from "./sides.ts";
import type { Sizes } from "./sizes.ts";

export interface Part {
  readonly text: string;
  readonly figures: object;
  /** False: something is wrong, and the command exits with 1. Default: true. */
  readonly complete?: boolean;
}

export const PARTS = {
  adoption,
  ahead,
  backlog,
  bloat,
  drill,
  estimate,
  fairness,
  limits,
  open,
  rollout,
  scaling,
  soak,
} as const satisfies Record<string, (sizes: Sizes) => Promise<Part>>;

export type PartName = keyof typeof PARTS;

const SIDES: readonly SideName[] = ["plain", "governed"];
/** While a deployment goes through, as many of the jobs end as this part of those that end otherwise. */
const ROLLOUT_PART = 0.8;
/** Beside an open transaction, other jobs wait so many times as long in the median, at most. */
const OPEN_RATIO = 1.5;
/** Jobs that wait in Graphile Worker are adopted within this. */
const ADOPTED_WITHIN_S = 30;
/** Meanwhile each job of another task starts within this. */
const OTHERS_WITHIN_MS = 1000;
/** At least so many starts are within what `explain` says, and it says no more than this part of the wait. */
const INSIDE = 0.8;
const WIDTH = 0.5;
const HEARD = ["jobs/s", "started", "p50 ms", "p99 ms"];

async function adoption({ adoption: size }: Sizes): Promise<Part> {
  const found: Adoption[] = [];
  for (const waiting of size.waiting) {
    for (const by of ADOPTERS) {
      console.error(`# adoption: ${short(waiting)} jobs by the ${by}`);
      found.push(await measureAdoption(waiting, by, size));
    }
  }
  const verdicts = found.map(({ seconds, most }) => ({
    moved: seconds < ADOPTED_WITHIN_S,
    othersStarted: most < OTHERS_WITHIN_MS,
  }));
  const rows = found.map(({ by, waiting, seconds, upAfter, others, p50, p99, most }, n) => [
    ...[by, ...[waiting, seconds, upAfter, others, p50, p99, most].map(short)],
    ...[verdicts[n]?.moved, verdicts[n]?.othersStarted].map((one) => met(one === true)),
  ]);
  const head = [
    ...["by", "waiting", "s", "worker up after ms", "other task's jobs", "p50 ms", "p99 ms", "most"],
    ...[`moved < ${ADOPTED_WITHIN_S} s`, `most < ${OTHERS_WITHIN_MS} ms`],
  ];
  return { text: columns([head, ...rows]), figures: { found, verdicts, settings: size } };
}

async function ahead({ ahead: size }: Sizes): Promise<Part> {
  const found: Waits[] = [];
  const crowds: CrowdWaits[] = [];
  for (const ms of size.lengths) {
    console.error(`# ahead: jobs of ${ms} ms`);
    found.push(await measureAhead(ms, size));
    for (const who of CROWDS)
      if ((size.crowdLengths[who] ?? size.lengths).includes(ms))
        crowds.push(await measureCrowd(ms, who, size));
  }
  const verdicts = { quiet: found.map(judgeAhead), crowds: crowds.map(judgeCrowd) };
  const text = `${aheadTable(found)}\n\n${crowdTable(crowds, size.crowd)}`;
  return { text, figures: { found, crowds, verdicts, settings: size } };
}

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

async function drill({ drill: size }: Sizes): Promise<Part> {
  const { found, cliStart } = await measureDrill(size);
  const differences = found.flatMap(({ differences }) => differences);
  const rows = found.map((one) => [
    ...[one.cause, one.reason ?? "-", one.gate ?? "-"],
    ...[one.sql, one.sqlProcessor, one.ts, one.tsProcessor, one.cli].map(short),
    met(isQuick(one)),
  ]);
  const head = [
    ...["cause", "reason", "gate", "SQL ms", "on a processor", "TypeScript ms", "on a processor"],
    ...["CLI process ms", `processor <= ${LIMIT_MS} ms`],
  ];
  const text = [
    columns([head, ...rows]),
    `A CLI process includes its start. The start alone, for --help, takes ${short(cliStart)} ms.`,
    differences.length === 0
      ? `SQL, TypeScript and CLI say the same of all ${found.length} causes.`
      : differences.join("\n"),
  ].join("\n\n");
  const figures = { found, cliStart, settings: size };
  return { text, figures, complete: differences.length === 0 };
}

/** Both by processor time where it is known, because another process may delay the server. */
function isQuick({ sql, sqlProcessor, ts, tsProcessor }: Drilled): boolean {
  const taken = Number.isNaN(sqlProcessor) ? [sql, ts] : [sqlProcessor, tsProcessor];
  return Math.max(...taken) <= LIMIT_MS;
}

async function estimate({ estimate: size }: Sizes): Promise<Part> {
  const found: Estimated[] = [];
  for (const waitsFor of WAITS) {
    console.error(`# estimate: jobs wait for their ${waitsFor}`);
    found.push(await measureEstimate(waitsFor, size));
  }
  const verdicts = found.map(({ inside, width, wait }) => ({
    inside: inside >= INSIDE,
    narrow: width < WIDTH * wait,
  }));
  const percent = (part: number) => `${(part * 100).toFixed(1)} %`;
  const rows = found.map((one, n) => [
    ...[one.waitsFor, String(one.explained), String(one.estimated)],
    ...[one.inside, one.early, one.late].map(percent),
    ...[one.wait, one.width].map(short),
    ...[(one.width / one.wait).toFixed(2), short(one.took)],
    ...[verdicts[n]?.inside, verdicts[n]?.narrow].map((is) => met(is === true)),
  ]);
  const head = [
    ...[
      "waits for",
      "explained",
      "estimated",
      "inside",
      "early",
      "late",
      "wait ms",
      "width ms",
      "width / wait",
    ],
    ...["took ms", `inside >= ${INSIDE}`, `width < ${WIDTH}`],
  ];
  const all = found.reduce((sum, { estimated }) => sum + estimated, 0);
  const held = found.reduce((sum, { estimated, inside }) => sum + estimated * inside, 0) / all;
  const text = `${columns([head, ...rows])}\nOf all ${all} estimates ${percent(held)} held.`;
  return { text, figures: { found, verdicts, held, settings: size } };
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

async function open({ open: size }: Sizes): Promise<Part> {
  const found = (await measureOpen(size)).map((one) => {
    const ratio = one.p50 / one.p50Without;
    return { ...one, ratio, met: ratio <= OPEN_RATIO };
  });
  const rows = found.map(({ kind, p50, most, p50Without, mostWithout, ratio, met: isMet }) => [
    ...[kind, ...[p50, most, p50Without, mostWithout].map(short)],
    ...[ratio.toFixed(2), met(isMet)],
  ]);
  const head = [
    ...["open transaction with", "p50 ms", "most", "without: p50 ms", "most"],
    ...["with / without", `<= ${OPEN_RATIO}`],
  ];
  return { text: columns([head, ...rows]), figures: { found, settings: size } };
}

async function rollout({ rollout: size }: Sizes): Promise<Part> {
  const found: Record<string, Rollout> = {};
  for (const [name, mixed] of [
    ["all governed", false],
    ["half without the package", true],
  ] as const) {
    console.error(`# rollout: ${name}`);
    found[name] = await measureRollout(mixed, size);
  }
  const rows = Object.entries(found).map(([name, one]) => [
    name,
    ...[one.added, one.ended, one.endedInSecond].map(short),
    String(one.most),
  ]);
  const [governed, mixed] = Object.values(found) as [Rollout, Rollout];
  const ratio = mixed.ended / governed.ended;
  const verdict = { ratio, target: ROLLOUT_PART, met: ratio >= ROLLOUT_PART };
  const most = Math.max(governed.most, mixed.most);
  const cap = { most, target: CAP, met: most <= CAP };
  const head = ["workers", "added", "ended", "in the second worker", "at once of a tenant"];
  const text = `${columns([head, ...rows])}

ended, half without the package / all governed: ${ratio.toFixed(2)}, target >= ${ROLLOUT_PART}: ${met(verdict.met)}
at once of a tenant, in workers with the package: ${most}, target <= ${CAP}: ${met(cap.met)}`;
  return { text, figures: { found, verdict, cap, settings: size } };
}

async function scaling({ scaling: size }: Sizes): Promise<Part> {
  const workers: Record<SideName, Draining[]> = { plain: [], governed: [] };
  for (const name of SIDES) workers[name] = await measureWorkers(name, size);
  const producers: Record<SideName, Adding[]> = { plain: [], governed: [] };
  for (const connections of size.connections) {
    for (const notifications of NOTIFICATIONS) {
      console.error(`# scaling: connections that add: ${connections}, ${notifications}`);
      for (const name of SIDES)
        producers[name].push(await measureProducers(name, connections, notifications, size));
    }
  }
  const text = `${workersTable(workers)}\n\n${producersTable(producers)}`;
  return { text, figures: { workers, producers, settings: size } };
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
