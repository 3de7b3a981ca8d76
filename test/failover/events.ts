// What happened, as lines of JSON in one file that every process appends to. No database is asked, because one loses things.
import fs from "node:fs";
import type { TaskName } from "./policies.ts";

export type How = "kill" | "stop" | "swallow" | "zombie";

/** `w`: the process that says it. `id`: the job, as its adder calls it. `n`: the round. */
export type Fact =
  | { k: "ack"; line: string; ids: string[]; staged: string[] }
  | { k: "unknown"; ids: string[]; message: string }
  /** `row` and `staged`: the ids of the row in Graphile Worker, and in staging. `admitted`: in milliseconds. */
  | {
      k: "start";
      w: string;
      id: string;
      task: TaskName;
      key: string;
      row: string;
      staged: string;
      admitted: number;
    }
  | { k: "end"; w: string; id: string; row: string }
  | { k: "exit"; w: string; code: number | null }
  | { k: "said"; w: string; message: string }
  /** `pace`: starts a second before. */
  | { k: "round"; n: number; how: How; pace: number }
  /** Replication is cut; the primary is gone; the standby is the primary; processes reach it, and the last of them. */
  | { k: "lagging" | "down" | "promoted" | "switched" | "allSwitched"; n: number }
  /** `seconds`: until all was as before, null: it was not in time. `silent`: workers that have started nothing. */
  | { k: "back"; n: number; seconds: number | null; silent: string[] }
  /** What is left at the end, when nothing has started or ended for long. `rows`: some, for whoever looks for the reason. */
  | { k: "left"; counts: Readonly<Record<string, number>>; rows: unknown[] };

export type Event = Fact & { readonly t: number };

export const now = (): number => performance.timeOrigin + performance.now();

/** Returns what appends to the file, at once: a process may end in the next moment. */
export function openLog(file: string): (fact: Fact) => void {
  const fd = fs.openSync(file, "a");
  return (fact) =>
    void fs.writeSync(fd, `${JSON.stringify({ t: Math.round(now() * 100) / 100, ...fact })}\n`);
}

/** Returns what reads the lines that were appended since it was last called. */
export function follow(file: string): () => Event[] {
  const fd = fs.openSync(file, "r");
  let rest = "";
  return () => {
    const buffer = Buffer.alloc(1 << 20);
    for (let count = -1; count !== 0; ) {
      count = fs.readSync(fd, buffer);
      rest += buffer.toString("utf8", 0, count); // all of it is ASCII
    }
    const lines = rest.split("\n");
    rest = lines.pop() as string;
    return lines.map((line) => JSON.parse(line));
  };
}
