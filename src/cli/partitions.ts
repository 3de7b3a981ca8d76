import type { OperateContext } from "../operate/call.ts";
import { keyInWords } from "../operate/gate-words.ts";
import { type PartitionStatus, partitions } from "../operate/look.ts";
import { status } from "../operate/status.ts";
import { REASON_KINDS } from "../policy/reasons.ts";
import { defineCommand } from "./command.ts";
import { LOOK, ONLY_POLICY, page } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList, tell } from "./output/say.ts";
import { table, visible } from "./output/table.ts";
import { fromNow, grouped, some } from "./output/words.ts";

const MOST = 50;

/** What waits in each partition, and why. */
export const command = defineCommand({
  options: {
    ...ONLY_POLICY,
    search: { kind: "text", meaning: "only keys that contain this", default: "all" },
    after: {
      kind: "text",
      meaning: "only keys after this: the last one of the page before",
      default: "none",
    },
    ...page(MOST),
    ...LOOK,
  },
  examples: [
    ["--policy fetch_endpoint --search acme", "by a part of the key"],
    ["--policy fetch_endpoint --after ep50", "the next page"],
  ],
  about: "They are in the order of their keys. The ones that wait the longest: see top.",
  async run(values) {
    const { policy, search, after, limit = MOST } = values;
    return looks(values, async (context) => {
      const rows = await partitions(context, { policy, search, after, limit });
      const exit = answerList(values, rows, { table: partitionTable, none: "No partition matches." });
      if (rows.length === 0 && policy !== undefined) await tellUnseen(context, policy);
      const last = rows.at(-1)?.partition;
      if (rows.length >= limit && last !== undefined)
        tell(`For more, add --after ${visible(JSON.stringify(last))}`);
      return exit;
    });
  },
});

/** Jobs that no tick has routed have no partition yet, and the list would hide that they wait. */
async function tellUnseen(context: OperateContext, policy: string): Promise<void> {
  const { policies } = await status(context, { policy });
  const [found] = policies;
  if (found === undefined || found.partitions > 0 || found.staged === 0) return;
  const [have, them] = found.staged === 1 ? ["has", "it"] : ["have", "them"];
  tell(
    `${some(found.staged, "staged job")} of ${policy} ${have} no partition yet, because no tick has seen ${them}: see doctor.`,
  );
}

function partitionTable(rows: readonly PartitionStatus[]): string {
  const isOfOne = new Set(rows.map(({ policy }) => policy)).size === 1;
  return table(
    [
      ...(isOfOne ? [] : [{ title: "POLICY", value: ({ policy }: PartitionStatus) => policy, least: 8 }]),
      { title: "PARTITION", value: ({ partition }) => keyInWords(partition), least: 10 },
      { title: "STAGED", isNumber: true, value: ({ staged }) => grouped(staged) },
      { title: "IN FLIGHT", isNumber: true, value: ({ inFlight }) => grouped(inFlight) },
      { title: "REASON", value: ({ reason }) => reason ?? "" },
      { title: "GATE OR BY", value: gateOrBy, least: 10 },
      { title: "UNTIL", value: untilOf },
    ],
    rows,
  );
}

/** The gate it waits for, or who stopped it and why. */
function gateOrBy(it: PartitionStatus): string {
  const { reason, blockedOn, stoppedBy, stopReason, breakerReason, paused } = it;
  if (reason === null || REASON_KINDS[reason] !== "stop") return reason === null ? "" : (blockedOn ?? "");
  if (reason === "paused" && !paused) return "its policy";
  if (reason === "breaker_open") return ["breaker", breakerReason].filter((text) => text !== null).join(": ");
  return [stoppedBy, stopReason].filter((text) => text !== null).join(": ");
}

function untilOf(it: PartitionStatus): string {
  const { reason, paused, pausedUntil, heldUntil, breakerUntil, deniedUntil } = it;
  if (reason === null) return "";
  if (reason === "paused") return paused ? fromNow(pausedUntil) : "";
  if (reason === "breaker_open") return fromNow(breakerUntil);
  return fromNow(reason === "held" ? heldUntil : deniedUntil);
}
