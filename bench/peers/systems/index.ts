import type { System } from "../system.ts";
import { bullmq } from "./bullmq.ts";
import { ours } from "./ours.ts";
import { pgBoss, pgBossLocal, pgBossTuned } from "./pg-boss.ts";
import { plain } from "./plain.ts";

export const SYSTEMS: readonly System[] = [plain, ours, pgBoss, pgBossTuned, pgBossLocal, bullmq];
