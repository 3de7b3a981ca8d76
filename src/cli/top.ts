import type { OperateContext } from "../operate/call.ts";
import type { Answer } from "../operate/explain.ts";
import { keyInWords } from "../operate/gate-words.ts";
import { longestWaiting } from "../operate/longest-waiting.ts";
import { type PolicyStatus, status, type WorkerStatus } from "../operate/status.ts";
import { rowsOf } from "../operate/view-rows.ts";
import { defineCommand, EXIT, UsageError } from "./command.ts";
import { JSON_OPTION } from "./input/options.ts";
import { lookingAt } from "./input/place.ts";
import { framed, type Part } from "./output/frame.ts";
import { say, sayJson } from "./output/say.ts";
import { onScreen } from "./output/screen.ts";
import { table } from "./output/table.ts";
import { atTime, fromNow, grouped, some } from "./output/words.ts";
import { OLDEST_DUE, stateOf, workerTable } from "./status.ts";

const EVERY_MS = 2000;
const MOST_PARTITIONS = 10;
const MINUTE_MS = 60_000;

/** What a frame shows. */
interface Frame {
  readonly at: Date;
  readonly policies: readonly (PolicyStatus & { readonly admittedPerMinute: number | null })[];
  readonly waiting: readonly Answer[];
  readonly workers: readonly WorkerStatus[];
  readonly shadows: readonly Shadow[];
}

/** How many jobs a shadow gate would have held back in the last ten minutes. */
interface Shadow {
  readonly policy: string;
  readonly gate: string;
  readonly wouldDeny: number;
}

/** Policies, partitions that wait, and workers, live. */
export const command = defineCommand({
  options: {
    once: { kind: "flag", meaning: "print one frame and end; needs no terminal", default: "off" },
    ...JSON_OPTION,
  },
  examples: [
    ["", "q quits"],
    ["--once --json", "one frame for a script"],
  ],
  about:
    "The screen is drawn again every 2 seconds. PACE/MIN is what was admitted meanwhile, by the minute. It shows the partitions of the jobs that have been due for longest, as far as something holds them back.",
  async run(values) {
    const { once, json } = values;
    if (!once && (json || !process.stdout.isTTY)) throw new UsageError("stdout is no terminal: give --once");
    return lookingAt(values, async (context) => {
      const next = frames(context);
      if (!once) await onScreen(EVERY_MS, async () => drawn(await next(), process.stdout.rows));
      else if (json) sayJson(await next());
      else say(drawn(await next()));
      return EXIT.done;
    });
  },
});

/** Makes frames. What was admitted between two of them gives the pace. */
function frames(context: OperateContext): () => Promise<Frame> {
  const { withPgClient, engine } = context;
  let before: { readonly at: number; readonly totals: ReadonlyMap<string, number> } | null = null;
  return async () => {
    const { policies, workers } = await status(context);
    const totals = new Map(
      (await withPgClient(engine.admittedTotals)).map(({ policy, admitted }) => [policy, admitted]),
    );
    const now = { at: performance.now(), totals };
    const paces = policies.map(({ policy }) => paceOf(policy, before, now));
    before = now;
    const waiting = await longestWaiting(context, MOST_PARTITIONS);
    return {
      at: new Date(),
      policies: policies.map((policy, place) => ({ ...policy, admittedPerMinute: paces[place] ?? null })),
      waiting,
      workers,
      shadows: await shadowsOf(context),
    };
  };
}

type Sample = { readonly at: number; readonly totals: ReadonlyMap<string, number> };

function paceOf(policy: string, before: Sample | null, now: Sample): number | null {
  const [first, last] = [before?.totals.get(policy), now.totals.get(policy)];
  if (!before || first === undefined || last === undefined) return null;
  // a sweep may have deleted partitions, and their numbers
  return Math.round((Math.max(last - first, 0) / (now.at - before.at)) * MINUTE_MS);
}

const RECENT = "where shadow_denied <> '{}' and minute > now() - interval '10 minutes'";

async function shadowsOf(context: OperateContext): Promise<readonly Shadow[]> {
  type Row = { readonly policy: string; readonly shadowDenied: Readonly<Record<string, number>> };
  const found = new Map<string, Shadow>();
  for (const { policy, shadowDenied } of await rowsOf<Row>(context, "minutes", RECENT, []))
    for (const [gate, jobs] of Object.entries(shadowDenied)) {
      const key = JSON.stringify([policy, gate]);
      found.set(key, { policy, gate, wouldDeny: jobs + (found.get(key)?.wouldDeny ?? 0) });
    }
  return [...found.values()].toSorted((one, other) => other.wouldDeny - one.wouldDeny);
}

function drawn({ at, policies, waiting, workers, shadows }: Frame, most?: number): string {
  const part = (none: string, rows: readonly unknown[], drawTable: () => string): Part =>
    rows.length === 0 ? { lines: [none] } : { lines: drawTable().split("\n"), hasHead: true };
  const live = workers.filter(({ alive }) => alive).length;
  return framed(
    `Dispatch policies at ${atTime(at)}`,
    [
      {
        ...part("No policy was declared.", policies, () => policyTable(policies)),
        ranks: policies.map(({ staged, inFlight }) => staged + inFlight),
      },
      part("No partition waits.", waiting, () => waitingTable(waiting, at.getTime())),
      ...(shadows.length === 0 ? [] : [part("", shadows, () => shadowTable(shadows))]),
      {
        ...part("No worker pool is known.", workers, () => workerTable(workers)),
        ...(workers.length > 0 && { short: `${some(workers.length, "worker pool")}, ${live} alive.` }),
      },
    ],
    most,
  );
}

function policyTable(policies: Frame["policies"]): string {
  return table(
    [
      { title: "POLICY", value: ({ policy }) => policy, least: 14 },
      { title: "STATE", value: stateOf },
      { title: "STAGED", isNumber: true, value: ({ staged }) => grouped(staged) },
      { ...OLDEST_DUE, spare: 1 },
      { title: "IN FLIGHT", isNumber: true, value: ({ inFlight }) => grouped(inFlight) },
      {
        title: "PACE/MIN",
        isNumber: true,
        spare: 2,
        value: ({ admittedPerMinute: pace }) => (pace === null ? "–" : grouped(pace)),
      },
    ],
    policies,
  );
}

function waitingTable(waiting: readonly Answer[], now: number): string {
  return table(
    [
      { title: "POLICY", value: ({ policy }) => policy ?? "", least: 14 },
      { title: "PARTITION", value: ({ partition }) => keyInWords(partition), least: 15 },
      { title: "DUE", value: ({ runAt }) => fromNow(runAt ?? null, now), spare: 2 },
      { title: "REASON", value: ({ reason }) => reason ?? "" },
      { title: "GATE", value: ({ gate }) => gate ?? "", least: 8, spare: 1 },
      { title: "UNTIL", value: ({ nextAt }) => fromNow(nextAt, now), spare: 3 },
    ],
    waiting,
  );
}

function shadowTable(shadows: readonly Shadow[]): string {
  return table(
    [
      { title: "POLICY", value: ({ policy }) => policy, least: 8 },
      { title: "SHADOW GATE", value: ({ gate }) => gate, least: 12 },
      {
        title: "WOULD HAVE HELD BACK IN 10 MIN",
        isNumber: true,
        value: ({ wouldDeny }) => grouped(wouldDeny),
      },
    ],
    shadows,
  );
}
