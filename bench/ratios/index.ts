import type { Ratio } from "../harness/ratio.ts";
import { admit } from "./admit.ts";
import { endToEndDefault, endToEndTuned } from "./end-to-end.ts";
import { floodRouting } from "./flood-routing.ts";
import { latencyIdle } from "./latency-idle.ts";
import { sharedTurnaround, slotTurnaround } from "./slot-turnaround.ts";
import { addCost, turnCostOwn, turnCostShared } from "./small-turns.ts";
import { stageBulk } from "./stage-bulk.ts";
import { stageSingle } from "./stage-single.ts";
import { tickBacklog, tickBacklogLarge } from "./tick-backlog.ts";
import { tickIdlePartitions } from "./tick-idle-partitions.ts";
import { WAITS } from "./waits.ts";

export const RATIOS: readonly Ratio[] = [
  stageBulk,
  stageSingle,
  admit,
  tickBacklog,
  tickIdlePartitions,
  endToEndDefault,
  endToEndTuned,
  slotTurnaround,
  sharedTurnaround,
  latencyIdle,
  turnCostOwn,
  turnCostShared,
  addCost,
  ...WAITS,
];

/** Measured with them. They have no baseline, so they are figures and no ratios. */
export const FIGURES: readonly Ratio[] = [floodRouting];

/** What `--large` adds. */
export const LARGE: readonly Ratio[] = [tickBacklogLarge];
