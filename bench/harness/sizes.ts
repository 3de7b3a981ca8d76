import type { AdoptionSize } from "../studies/adoption.ts";
import type { AheadSize } from "../studies/ahead.ts";
import type { BacklogSize } from "../studies/backlog.ts";
import type { BloatSize } from "../studies/bloat.ts";
import type { DrillSize } from "../studies/drill.ts";
import type { EstimateSize } from "../studies/estimate.ts";
import type { FairnessSize } from "../studies/fairness.ts";
import type { LimitsSize } from "../studies/limits.ts";
import type { OpenSize } from "../studies/open.ts";
import type { RolloutSize } from "../studies/rollout.ts";
import type { ScalingSize } from "../studies/scaling.ts";
import type { SoakSize } from "../studies/soak.ts";
import type { Rounds } from "./pairs.ts";

export interface Sizes {
  readonly stageBulk: Rounds & { jobs: number; jobsPerCall: number; partitions: number };
  readonly stageSingle: Rounds & { jobs: number };
  readonly admit: Rounds & { partitions: number; jobsPerPartition: number };
  readonly tickBacklog: Rounds & { staged: number; stagedBaseline: number };
  readonly tickBacklogLarge: Rounds & { staged: number; stagedBaseline: number };
  readonly tickIdlePartitions: Rounds & { staged: number; idlePartitions: number };
  readonly endToEndDefault: Rounds & { jobs: number; partitions: number };
  readonly endToEndTuned: Rounds & { jobs: number; partitions: number };
  readonly slotTurnaround: Rounds & { samples: number };
  readonly latencyIdle: Rounds & { samples: number };
  readonly smallTurns: Rounds & { turns: number };
  readonly waits: Rounds & { rates: readonly [number, number, number]; seconds: number; tenants: number };
  readonly floodRouting: { arrivals: number; samples: number };
  readonly adoption: AdoptionSize;
  readonly ahead: AheadSize;
  readonly backlog: BacklogSize;
  readonly limits: LimitsSize;
  readonly soak: SoakSize;
  readonly bloat: BloatSize;
  readonly drill: DrillSize;
  readonly estimate: EstimateSize;
  readonly fairness: FairnessSize;
  readonly open: OpenSize;
  readonly rollout: RolloutSize;
  readonly scaling: ScalingSize;
}

const FULL: Sizes = {
  stageBulk: { runs: 7, warmUps: 1, jobs: 100_000, jobsPerCall: 10_000, partitions: 1000 },
  stageSingle: { runs: 25, warmUps: 1, jobs: 200 },
  admit: { runs: 15, warmUps: 2, partitions: 50, jobsPerPartition: 100 },
  tickBacklog: { runs: 41, warmUps: 6, staged: 1_000_000, stagedBaseline: 1000 },
  tickBacklogLarge: { runs: 41, warmUps: 6, staged: 10_000_000, stagedBaseline: 1000 },
  tickIdlePartitions: { runs: 41, warmUps: 6, staged: 10_000, idlePartitions: 100_000 },
  endToEndDefault: { runs: 5, warmUps: 0, jobs: 20_000, partitions: 100 },
  endToEndTuned: { runs: 5, warmUps: 0, jobs: 100_000, partitions: 100 },
  slotTurnaround: { runs: 21, warmUps: 1, samples: 50 },
  latencyIdle: { runs: 21, warmUps: 1, samples: 50 },
  smallTurns: { runs: 15, warmUps: 2, turns: 20 },
  waits: { runs: 3, warmUps: 0, rates: [100, 200, 400], seconds: 6, tenants: 100 },
  floodRouting: { arrivals: 1_000_000, samples: 20 },
  adoption: { waiting: [10_000, 100_000], partitions: 1000, seconds: 15, kills: 3 },
  ahead: {
    lengths: [0, 5, 20, 200, 1000, 10_000],
    slots: 10,
    waiting: 20_000,
    samples: 20,
    starts: 200,
    crowd: 50_000,
    crowdLengths: { fresh: [0, 1000], "due at one time": [20, 1000] },
  },
  backlog: { waiting: [50_000, 1_000_000], partitions: 1000, seconds: 15, urgentJobs: 50 },
  bloat: { jobs: 1_000_000, jobsPerCall: 10_000, partitions: 1000, waiting: 50_000 },
  drill: { partitions: 100_000, samples: 21, processes: 5 },
  limits: { firstRate: 100, factor: 1.4, mostSteps: 14, secondsPerStep: 10, tenants: 100 },
  soak: { minutes: 30, secondsPerMinute: 60, tenants: 200, part: 0.7 },
  estimate: {
    ...{ jobs: 2400, tenants: 4, rate: 15, cap: 3, halfLifeMs: 60_000, jobMs: 200, slots: 24 },
    ...{ warmUpMs: 6000, samples: 200, everyMs: 70 },
  },
  fairness: {
    tenants: {
      "long-1": { ms: 2000, jobs: 1500 },
      "long-2": { ms: 2000, jobs: 1500 },
      "short-1": { ms: 10, jobs: 100_000 },
      "short-2": { ms: 10, jobs: 100_000 },
    },
    ...{ warmUpSeconds: 10, windows: 12, secondsPerWindow: 5 },
  },
  open: { turns: 10, samples: 20 },
  rollout: { tenants: 4, rate: 40, jobMs: 50, seconds: 60, slots: 10 },
  scaling: {
    ...{ workers: [1, 2, 4, 8, 16, 32], slots: 4, lengths: [0, 20], jobs: 8000, drainSeconds: 6 },
    ...{ connections: [1, 4, 16, 64], turns: 3, secondsPerTurn: 1, tenants: 100 },
  },
};

const QUICK: Sizes = {
  stageBulk: { ...FULL.stageBulk, runs: 3, jobs: 20_000 },
  stageSingle: { ...FULL.stageSingle, runs: 9, jobs: 50 },
  admit: { ...FULL.admit, runs: 5, warmUps: 1 },
  tickBacklog: { ...FULL.tickBacklog, runs: 15, warmUps: 3, staged: 200_000 },
  tickBacklogLarge: { ...FULL.tickBacklogLarge, runs: 15, warmUps: 3 },
  tickIdlePartitions: { ...FULL.tickIdlePartitions, runs: 15, warmUps: 3, idlePartitions: 20_000 },
  endToEndDefault: { ...FULL.endToEndDefault, runs: 3, jobs: 4000 },
  endToEndTuned: { ...FULL.endToEndTuned, runs: 3, jobs: 24_000 },
  slotTurnaround: { ...FULL.slotTurnaround, runs: 7, samples: 15 },
  latencyIdle: { ...FULL.latencyIdle, runs: 7, samples: 15 },
  smallTurns: { ...FULL.smallTurns, runs: 7 },
  waits: { ...FULL.waits, runs: 1, seconds: 4 },
  floodRouting: { arrivals: 200_000, samples: 20 },
  adoption: { ...FULL.adoption, waiting: [20_000], seconds: 5 },
  ahead: { ...FULL.ahead, lengths: [0, 5, 20, 200, 1000], samples: 10 },
  backlog: { ...FULL.backlog, waiting: [20_000, 200_000], seconds: 5 },
  bloat: { ...FULL.bloat, jobs: 50_000 },
  drill: { partitions: 20_000, samples: 9, processes: 2 },
  limits: { ...FULL.limits, factor: 2, mostSteps: 7, secondsPerStep: 3 },
  soak: { ...FULL.soak, minutes: 3, secondsPerMinute: 10 },
  estimate: { ...FULL.estimate, jobs: 1200, warmUpMs: 4000, samples: 60 },
  fairness: { ...FULL.fairness, windows: 4 },
  open: { turns: 3, samples: 20 },
  rollout: { ...FULL.rollout, seconds: 20 },
  scaling: {
    ...{ ...FULL.scaling, workers: [1, 4, 16], jobs: 4000, drainSeconds: 3 },
    ...{ connections: [1, 16], turns: 2 },
  },
};

/** Says that everything works, and nothing about pace. */
const SMALLEST: Sizes = {
  stageBulk: { runs: 1, warmUps: 0, jobs: 200, jobsPerCall: 100, partitions: 10 },
  stageSingle: { runs: 1, warmUps: 0, jobs: 5 },
  admit: { runs: 1, warmUps: 0, partitions: 5, jobsPerPartition: 5 },
  tickBacklog: { runs: 1, warmUps: 0, staged: 2000, stagedBaseline: 1000 },
  tickBacklogLarge: { runs: 1, warmUps: 0, staged: 4000, stagedBaseline: 1000 },
  tickIdlePartitions: { runs: 1, warmUps: 0, staged: 1000, idlePartitions: 100 },
  endToEndDefault: { runs: 1, warmUps: 0, jobs: 2000, partitions: 10 },
  endToEndTuned: { runs: 1, warmUps: 0, jobs: 15_000, partitions: 10 },
  slotTurnaround: { runs: 1, warmUps: 0, samples: 5 },
  latencyIdle: { runs: 1, warmUps: 0, samples: 5 },
  smallTurns: { runs: 1, warmUps: 0, turns: 3 },
  waits: { runs: 1, warmUps: 0, rates: [20, 20, 20], seconds: 1, tenants: 10 },
  floodRouting: { arrivals: 1000, samples: 3 },
  adoption: { waiting: [500], partitions: 10, seconds: 1, kills: 1 },
  ahead: {
    ...{ lengths: [5], slots: 2, waiting: 20_000, samples: 2 },
    ...{ starts: 20, crowd: 100, crowdLengths: {} },
  },
  backlog: { waiting: [100, 1000], partitions: 10, seconds: 1, urgentJobs: 5 },
  bloat: { jobs: 600, jobsPerCall: 200, partitions: 10, waiting: 300 },
  drill: { partitions: 20, samples: 3, processes: 1 },
  limits: { firstRate: 20, factor: 2, mostSteps: 2, secondsPerStep: 1, tenants: 10 },
  soak: { minutes: 2, secondsPerMinute: 1, tenants: 10, part: 0.7 },
  estimate: {
    ...{ jobs: 80, tenants: 2, rate: 20, cap: 2, halfLifeMs: 60_000, jobMs: 50, slots: 8 },
    ...{ warmUpMs: 500, samples: 3, everyMs: 10 },
  },
  fairness: {
    tenants: { long: { ms: 100, jobs: 600 }, short: { ms: 1, jobs: 5000 } },
    ...{ warmUpSeconds: 1, windows: 2, secondsPerWindow: 1 },
  },
  open: { turns: 1, samples: 2 },
  rollout: { tenants: 2, rate: 20, jobMs: 10, seconds: 3, slots: 2 },
  scaling: {
    ...{ workers: [1, 2], slots: 2, lengths: [0, 5], jobs: 200, drainSeconds: 0.5 },
    ...{ connections: [3], turns: 1, secondsPerTurn: 0.1, tenants: 10 },
  },
};

export const SIZES = { full: FULL, quick: QUICK, smallest: SMALLEST };
