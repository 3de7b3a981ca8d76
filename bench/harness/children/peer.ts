// A worker of one of the systems. Its tasks take their time, and note when they begin and end.
import { setTimeout as delay } from "node:timers/promises";
import { openNotes } from "../../peers/notes.ts";
import type { Seen } from "../../peers/seen.ts";
import type { World } from "../../peers/system.ts";
import { SYSTEMS } from "../../peers/systems/index.ts";
import { moment } from "../moment.ts";
import { readOrders, serve } from "./parent.ts";

export interface PeerOrders {
  readonly system: string;
  readonly world: World;
  readonly workMs: number;
  /** A file that the runs are noted in as well. */
  readonly notes?: string;
}

export type Question =
  | { readonly ask: "start" }
  /** Until so many jobs of a key, or of all, have ended, or the time is over. */
  | { readonly ask: "wait"; readonly key?: string; readonly ends: number; readonly withinMs: number }
  | { readonly ask: "seen" };

const STEP_MS = 20;

const { system: name, world, workMs, notes } = readOrders<PeerOrders>();
const system = SYSTEMS.find((system) => system.name === name)!;
const note = notes === undefined ? () => {} : openNotes(notes);
const seen: Seen[] = [];
const ended = new Map<string | undefined, number>();
let stop: () => Promise<unknown> = async () => {};

async function answer(question: Question): Promise<object> {
  if (question.ask === "start") stop = await system.start(world, task);
  if (question.ask === "wait") await wait(question);
  return question.ask === "seen" ? seen : {};
}

async function task({ key, id }: { key: string; id: number }): Promise<void> {
  const run: { -readonly [name in keyof Seen]: Seen[name] } = { key, id, start: moment() };
  seen.push(run);
  note(run);
  if (workMs > 0) await delay(workMs);
  run.end = moment();
  note(run);
  for (const counted of [key, undefined]) ended.set(counted, (ended.get(counted) ?? 0) + 1);
}

async function wait({ key, ends, withinMs }: Question & { ask: "wait" }): Promise<void> {
  const last = moment() + withinMs;
  while ((ended.get(key) ?? 0) < ends && moment() < last) await delay(STEP_MS);
}

serve(answer, () => stop());
