import { keyInWords } from "../operate/gate-words.ts";
import { hold } from "../operate/hold.ts";
import type { HoldTarget } from "../operate/targets.ts";
import type { Until } from "../policy/policy.ts";
import { defineCommand, UsageError } from "./command.ts";
import { DRY_RUN, named, POLICY, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerReach, tell } from "./output/say.ts";
import { atTime, inWords } from "./output/words.ts";

/** Stops a partition, or a key of a gate, for some time. */
export const command = defineCommand({
  options: {
    ...POLICY,
    partition: { kind: "text", meaning: "the key of the partition; or instead of it:", default: "none" },
    gate: { kind: "text", meaning: "the name of a gate, of which a key is held", default: "none" },
    key: { kind: "text", meaning: "the scope key, such as an account", default: "none" },
    for: {
      kind: "duration",
      meaning: 'for how long, such as "30 seconds"; or instead of it:',
      default: "none",
    },
    until: { kind: "time", meaning: "when it ends", default: "none" },
    ...DRY_RUN,
    ...WHY,
  },
  examples: [
    ['--policy fetch_endpoint --partition ep1 --for "30 seconds" --reason 429', "half a minute"],
    ['--policy fetch_endpoint --gate account --key acme --for "5 minutes"', "all partitions of acme"],
  ],
  about:
    "It ends by itself. Behind the hold of a partition one job goes first, and the others follow once one has succeeded. " +
    "The hold of a key is a limit of 0, which clear-limit ends.",
  async run(values) {
    const { policy, partition, gate, key, for: forMs, until, "dry-run": dryRun } = values;
    if ((partition === undefined) === (gate === undefined))
      throw new UsageError("give --partition KEY, or --gate NAME with --key KEY");
    if (key !== undefined && gate === undefined) throw new UsageError("--key needs --gate NAME");
    if ((forMs === undefined) === (until === undefined))
      throw new UsageError("give --for DURATION or --until TIME");
    const end = { until, forMs } as Until;
    const target = (gate === undefined ? { policy, partition } : { policy, gate, key }) as HoldTarget;
    const result = await changing(values, (context) =>
      hold(context, { ...target, ...end, dryRun, ...whyOf(values) }),
    );
    const what =
      gate === undefined
        ? named({ policy, partition })
        : `gate ${gate}${key === undefined ? "" : ` of ${keyInWords(key)}`}`;
    const length = until ? `until ${atTime(until)}` : `for ${inWords(forMs ?? 0)}`;
    const words = `${what} on hold ${length}`;
    if (dryRun) return answerReach(values, result, `Would put ${words}`);
    const exit = answer(values, result, `Put ${words}.`);
    if (result.stored) tell("No job has had this key yet: the hold waits for the first.");
    return exit;
  },
});
