import type { System } from "../system.ts";
import { bullmq } from "./bullmq.ts";
import { ours, oursSmooth } from "./ours.ts";
import { pgBoss, pgBossLocal, pgBossTuned } from "./pg-boss.ts";
import { plain } from "./plain.ts";

export const SYSTEMS: readonly System[] = [plain, ours, oursSmooth, pgBoss, pgBossTuned, pgBossLocal, bullmq];
