// The tables of the study "ahead", and its targets.
import { median } from "../harness/statistics.ts";
import type { CrowdWaits, Waits } from "../studies/ahead.ts";
import { columns, met, short } from "./report.ts";

/** A quiet tenant's job beside a loud one starts so soon after the next slot is free, at most. */
const BEYOND_MS = 500;
/** The share of a tenant of weight 2 beside one of weight 1, and by which part it may differ. */
const DOUBLE_SHARE = 2 / 3;
const SHARE_WITHIN = 0.1;
/** In the second second as many jobs start as this part of those that start in a second later. */
const RAMP_PART = 0.8;
/** A quiet or heavy tenant's job beside a crowd starts so soon after the next slot is free, in the median. */
const CROWD_BEYOND_MS = 1000;

/** Whether each target is met; undefined: there is none for jobs of this length. */
export function judgeAhead({ beyond, share, ramp }: Waits) {
  return {
    beyond: (beyond.at(-1) as number) <= BEYOND_MS,
    share: Math.abs(share / DOUBLE_SHARE - 1) <= SHARE_WITHIN,
    ramp: Number.isNaN(ramp) ? undefined : ramp >= RAMP_PART,
  };
}

export function judgeCrowd({ quietBeyond, heavyBeyond }: CrowdWaits) {
  return {
    quiet: quietBeyond.length === 0 ? undefined : median(quietBeyond) <= CROWD_BEYOND_MS,
    heavy: median(heavyBeyond) <= CROWD_BEYOND_MS,
  };
}

export function aheadTable(found: readonly Waits[]): string {
  const rows = found.map((one) => {
    const { beyond, share, ramp } = judgeAhead(one);
    return [
      ...[short(one.ms), short(one.pace), ...middleAndMost(one.waits), ...middleAndMost(one.beyond)],
      ...[met(beyond), (one.share * 100).toFixed(1), met(share)],
      ...[Number.isNaN(one.ramp) ? "-" : one.ramp.toFixed(2), met(ramp)],
    ];
  });
  const head = [
    ...["job ms", "jobs/s", "wait p50 ms", "most", "beyond a slot p50 ms", "most", `<= ${BEYOND_MS} ms`],
    ...["% of weight 2", `within ${SHARE_WITHIN * 100} %`, "2nd second / pace", `>= ${RAMP_PART}`],
  ];
  return columns([head, ...rows]);
}

export function crowdTable(crowds: readonly CrowdWaits[], size: number): string {
  const rows = crowds.map((one) => {
    const { quiet, heavy } = judgeCrowd(one);
    return [
      ...[short(one.ms), one.who, ...middleAndMost(one.quiet), ...middleAndMost(one.quietBeyond), met(quiet)],
      ...[...middleAndMost(one.heavy), ...middleAndMost(one.heavyBeyond), met(heavy)],
    ];
  });
  const target = `p50 beyond <= ${CROWD_BEYOND_MS} ms`;
  const head = [
    ...["job ms", `beside ${short(size)}`],
    ...["quiet p50 ms", "most", "beyond a slot p50 ms", "most", target],
    ...["weight 100 p50 ms", "most", "beyond a slot p50 ms", "most", target],
  ];
  return columns([head, ...rows]);
}

function middleAndMost(all: readonly number[]): string[] {
  return all.length === 0 ? ["-", "-"] : [median(all), Math.max(...all)].map(short);
}
