// What tasks saw, in a file: it outlives the process that wrote it, even one that is killed.
import { openSync, readFileSync, writeSync } from "node:fs";
import type { Seen } from "./seen.ts";

/** Notes a run, once when it begins and again when it ends. Each note is written before the task goes on. */
export function openNotes(file: string): (run: Seen) => void {
  const notes = openSync(file, "a");
  return (run) => void writeSync(notes, `${JSON.stringify(run)}\n`);
}

export function readNotes(file: string): Seen[] {
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  const runs = lines.map((line) => JSON.parse(line) as Seen);
  return [...new Map(runs.map((run) => [`${run.key} ${run.id} ${run.start}`, run])).values()];
}
