import { columns, short } from "../report/report.ts";
import type { Case, Figures } from "./case.ts";
import { cap, uncapped } from "./cases/cap.ts";
import type { PeerSizes } from "./sizes.ts";
import type { System } from "./system.ts";
import { SYSTEMS } from "./systems/index.ts";

/** One system in one case. */
export interface PeerResult {
  readonly case: Case;
  readonly system: System;
  readonly figures: Figures;
  readonly seconds: number;
}

/** A table for each case, with who is not in it. */
export function table(results: readonly PeerResult[]): string {
  const costs = costsOf(results).map(([name, cost]) => [name, cost.toFixed(2)]);
  return [
    ...byCase(results).map(tableOf),
    ...(costs.length > 0 ? [columns([["cap ÷ uncapped", "jobsPerSecond"], ...costs])] : []),
  ].join("\n\n");
}

function tableOf([{ name, limit }, results]: [Case, PeerResult[]]): string {
  const names = Object.keys(results[0]?.figures ?? {});
  const rows = results.map(({ system, figures }) => [
    system.name,
    ...names.map((name) => show(figures[name] ?? Number.NaN)),
  ]);
  const leftOut = leftOutOf(limit).map(([system, why]) => `${system}: ${why}`);
  return [columns([[name, ...names], ...rows]), ...leftOut].join("\n");
}

function show(value: number): string {
  return Number.isInteger(value) ? String(value) : short(value);
}

export function json(results: readonly PeerResult[], sizes: PeerSizes): object {
  const cases = byCase(results).map(([{ name, what, limit, size }, own]) => [
    name,
    {
      what,
      limit,
      size: sizes[size],
      systems: Object.fromEntries(own.map((result) => [result.system.name, systemFigures(result)])),
      leftOut: Object.fromEntries(leftOutOf(limit)),
    },
  ]);
  return { ...Object.fromEntries(cases), limitCost: Object.fromEntries(costsOf(results)) };
}

function systemFigures({ system, figures, seconds }: PeerResult): object {
  return { figures, settings: system.settings, seconds };
}

/** Of each system measured with the cap and without: its throughput with it, divided by that without. */
function costsOf(results: readonly PeerResult[]): [string, number][] {
  const pace = (of: Case, system: System) =>
    results.find((result) => result.case === of && result.system === system)?.figures.jobsPerSecond;
  return SYSTEMS.flatMap((system) => {
    const [limited, free] = [pace(cap, system), pace(uncapped, system)];
    return limited && free ? [[system.name, limited / free]] : [];
  });
}

function leftOutOf(limit: Case["limit"]): [string, string][] {
  return SYSTEMS.flatMap((system) => {
    const why = system.cannot(limit);
    return why ? [[system.name, why]] : [];
  });
}

const byCase = (results: readonly PeerResult[]) => [...Map.groupBy(results, (result) => result.case)];
