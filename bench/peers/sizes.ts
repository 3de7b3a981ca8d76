import type { SIZES } from "../harness/sizes.ts";

export interface CapSize {
  readonly tenants: number;
  readonly jobsPerTenant: number;
  readonly workMs: number;
  /** A run is cut off then. */
  readonly withinMs: number;
}

export interface FloodSize {
  readonly jobs: number;
  readonly workMs: number;
  readonly samples: number;
  readonly everyMs: number;
  /** After the last sample was added. */
  readonly withinMs: number;
}

export interface RateSize {
  readonly keys: number;
  readonly seconds: number;
}

export interface KillsSize {
  readonly tenants: number;
  readonly jobsPerTenant: number;
  readonly workMs: number;
  readonly workers: number;
  readonly kills: number;
  readonly everyMs: number;
  /** After the last kill. */
  readonly withinMs: number;
}

export interface PeerSizes {
  readonly cap: CapSize;
  readonly slot: CapSize;
  readonly flood: FloodSize;
  readonly rate: RateSize;
  readonly kills: KillsSize;
}

export const PEER_SIZES: Record<keyof typeof SIZES, PeerSizes> = {
  full: {
    cap: { tenants: 100, jobsPerTenant: 300, workMs: 20, withinMs: 60_000 },
    slot: { tenants: 4, jobsPerTenant: 300, workMs: 20, withinMs: 30_000 },
    flood: { jobs: 100_000, workMs: 20, samples: 150, everyMs: 200, withinMs: 60_000 },
    rate: { keys: 20, seconds: 65 },
    kills: {
      tenants: 20,
      jobsPerTenant: 100,
      workMs: 1000,
      workers: 3,
      kills: 8,
      everyMs: 5000,
      withinMs: 90_000,
    },
  },
  quick: {
    cap: { tenants: 100, jobsPerTenant: 30, workMs: 20, withinMs: 10_000 },
    slot: { tenants: 4, jobsPerTenant: 60, workMs: 20, withinMs: 10_000 },
    flood: { jobs: 5000, workMs: 20, samples: 25, everyMs: 200, withinMs: 10_000 },
    rate: { keys: 5, seconds: 8 },
    kills: {
      tenants: 5,
      jobsPerTenant: 30,
      workMs: 500,
      workers: 2,
      kills: 2,
      everyMs: 3000,
      withinMs: 30_000,
    },
  },
  smallest: {
    cap: { tenants: 2, jobsPerTenant: 4, workMs: 5, withinMs: 5000 },
    slot: { tenants: 1, jobsPerTenant: 5, workMs: 5, withinMs: 500 },
    flood: { jobs: 20, workMs: 5, samples: 2, everyMs: 50, withinMs: 500 },
    rate: { keys: 2, seconds: 1 },
    kills: { tenants: 2, jobsPerTenant: 4, workMs: 50, workers: 2, kills: 1, everyMs: 300, withinMs: 5000 },
  },
};
