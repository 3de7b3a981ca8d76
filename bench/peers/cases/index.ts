import type { Case } from "../case.ts";
import { cap, uncapped } from "./cap.ts";
import { flood, floodCapped } from "./flood.ts";
import { kills } from "./kills.ts";
import { rate } from "./rate.ts";
import { slot } from "./slot.ts";

export const CASES: readonly Case[] = [uncapped, cap, slot, flood, floodCapped, rate, kills];
