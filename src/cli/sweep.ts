import { connected } from "../db/looking.ts";
import { noEvents } from "../events.ts";
import { type Ages, type Repaired, sweepFully } from "../operate/sweep.ts";
import { type DispatchPolicyOptions, readSettings } from "../settings.ts";
import { defineCommand, EXIT } from "./command.ts";
import { JSON_OPTION } from "./input/options.ts";
import { inPlace, placeOf } from "./input/place.ts";
import { say, sayJson, tell } from "./output/say.ts";
import { grouped } from "./output/words.ts";

const WORDS: Readonly<Record<keyof Repaired, string>> = {
  pools: "dead worker pools",
  unlocked: "jobs of theirs, unlocked",
  overdue: "jobs past their slotTimeout",
  jobs: "jobs that had slots and were gone",
  counters: "limiters that had counted wrong",
  asleep: "partitions that nobody would have claimed",
  blocked: "partitions that waited for a gate with room",
  pending: "policies that had counted their backlog wrong",
};

/** One repair pass. */
export const command = defineCommand({
  options: JSON_OPTION,
  examples: [["", "repair now what workers repair every minute"]],
  about:
    "Only with a configuration (--config) it also deletes what the preset says: old rows of the audit, old minutes, unused partitions and limiters.",
  async run(values) {
    const place = await placeOf(values);
    const { repaired } = await inPlace(place, connected, (context) =>
      sweepFully({ ...context, logger: { warn: tell }, ages: agesOf(place.options), events: noEvents }),
    );
    if (values.json) sayJson(repaired);
    else {
      const found = Object.entries(repaired).filter(([, count]) => count > 0) as [keyof Repaired, number][];
      for (const [kind, count] of found) say(`${grouped(count)} ${WORDS[kind]}`);
      if (found.length === 0) say("Nothing was to repair.");
    }
    return EXIT.done;
  },
});

/** The longest time that PostgreSQL can subtract from any likely date. */
const NEVER_MS = 1e6 * 86_400_000;

/** Without the preset nobody knows how long it keeps rows. A default may be shorter, so nothing is deleted then. */
function agesOf(options: DispatchPolicyOptions | undefined): Ages {
  if (options !== undefined) return readSettings(options);
  return { partitionInactiveAfterMs: NEVER_MS, keepAuditForMs: NEVER_MS, metricsRetentionMs: NEVER_MS };
}
