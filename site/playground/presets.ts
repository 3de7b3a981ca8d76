import { DEFAULTS, type Setup } from "./setup.ts";

/** A card: settings that show one thing, and what to look for. */
export interface Preset {
  readonly id: string;
  readonly title: string;
  /** One sentence. */
  readonly shows: string;
  readonly setup: Setup;
}

const preset = (id: string, title: string, shows: string, setup: Partial<Setup>): Preset => ({
  ...{ id, title, shows },
  setup: { ...DEFAULTS, ...setup },
});

export const PRESETS: readonly Preset[] = [
  preset("throttle", "Throttle", "After a burst of three, each tenant's jobs start one a second.", {
    ...{ rate: 1, burst: 3 },
  }),
  preset("concurrency", "Concurrency", "Two jobs of a tenant run at once. The next starts when one ends.", {
    ...{ max: 2, run: 3 },
  }),
  preset("both", "Both", "A bucket fills while the cap keeps jobs back, so it is the cap that counts.", {
    ...{ rate: 1, burst: 6, max: 3, run: 5, skew: 0.5 },
  }),
  preset(
    "scheduled",
    "Scheduled",
    "Jobs wait until they are due. Those that are due together go at the rate.",
    {
      ...{ arrival: "scheduled", over: 20, rate: 1, burst: 2, jobs: 90 },
    },
  ),
  preset("retries", "Retries", "A run that failed frees its slot, and waits for its retry in staging.", {
    ...{ failing: 40, max: 2, run: 1.5, jobs: 60 },
  }),
  preset("bulk", "Bulk", "One tenant adds hundreds of jobs at once. The others do not notice.", {
    ...{ jobs: 300, skew: 3, max: 4, run: 1.5, tenants: 5 },
  }),
  preset("sharding", "Sharding", "Two tick loops share one limit over all tenants.", {
    ...{ shards: 2, scope: "policy", rate: 3, burst: 3, skew: 0 },
  }),
  preset(
    "fairness",
    "Fairness",
    "All share one rate. The loud one does not starve the others, and weight 3 goes three times as often.",
    {
      ...{ scope: "policy", rate: 4, burst: 4, weight: 3, skew: 0.5, jobs: 240, run: 1 },
    },
  ),
  preset(
    "classes",
    "Classes",
    "The last tenant's nightly jobs are of class 1: every tenth place is theirs until no other waits.",
    {
      ...{ scope: "policy", rate: 4, burst: 4, skew: 0, jobs: 160, run: 1, later: 1, share: 10 },
    },
  ),
  preset("adaptive", "Adaptive", "The cap finds out how many jobs the workers can take.", {
    ...{ cap: "adaptive", scope: "policy", max: 16, workers: 5, jobs: 200, run: 1, skew: 0.5 },
  }),
  preset("shared", "Shared scope", "Two tenants share an account, and the account's three slots.", {
    ...{ scope: "account", max: 3, run: 2.5 },
  }),
  preset(
    "policies",
    "Shared limit",
    "Jobs of two policies share four slots. Together they never run more, and all tenants take turns.",
    {
      ...{ policies: 2, scope: "policy", max: 4, run: 2, skew: 0.5 },
    },
  ),
  preset(
    "newest",
    "Newest wins",
    "Jobs come in bursts of ten of one key. Of each, one run is cancelled, and the newest job runs.",
    {
      ...{ newest: "cancel", arrival: "bursts", over: 50, jobs: 240, run: 4, skew: 0.5 },
    },
  ),
  preset(
    "slots",
    "Slots by cost",
    "A job of the last tenant takes four of six slots. It goes in its turn: the others leave free ones to it.",
    {
      ...{ scope: "policy", max: 6, cost: 4, run: 2, skew: 0.5 },
    },
  ),
  preset(
    "hold",
    "Hold after 429",
    "The partner of acme refuses. Its partition is held, then one job goes first as a probe.",
    {
      ...{ refused: 18, rate: 1, burst: 2, jobs: 100, skew: 0.5, arrival: "stream", over: 30 },
    },
  ),
  preset(
    "night",
    "Night tariff",
    "For a third of the time an operator's limit lets jobs go four times as fast.",
    {
      ...{ rate: 0.5, night: 2, jobs: 160, skew: 0, run: 1, burst: 1, seconds: 90 },
    },
  ),
];
