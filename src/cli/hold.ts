import { hold } from "../operate/hold.ts";
import type { Until } from "../policy/policy.ts";
import { defineCommand, UsageError } from "./command.ts";
import { named, POLICY, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, tell } from "./output/say.ts";
import { atTime, inWords } from "./output/words.ts";

/** Stops a partition for some time. */
export const command = defineCommand({
  options: {
    ...POLICY,
    partition: { kind: "text", required: true, meaning: "the key of the partition" },
    for: {
      kind: "duration",
      meaning: 'for how long, such as "30 seconds"; or instead of it:',
      default: "none",
    },
    until: { kind: "time", meaning: "when it ends", default: "none" },
    ...WHY,
  },
  examples: [['--policy fetch_endpoint --partition ep1 --for "30 seconds" --reason 429', "half a minute"]],
  about: "It ends by itself. Then one job goes first, and the others follow once one has succeeded.",
  async run(values) {
    const { policy, partition, for: forMs, until } = values;
    if ((forMs === undefined) === (until === undefined))
      throw new UsageError("give --for DURATION or --until TIME");
    const end = { until, forMs } as Until;
    const result = await changing(values, (context) =>
      hold(context, { policy, partition, ...end, ...whyOf(values) }),
    );
    const length = until ? `until ${atTime(until)}` : `for ${inWords(forMs ?? 0)}`;
    const exit = answer(values, result, `Put ${named({ policy, partition })} on hold ${length}.`);
    if (result.stored) tell("No job has had this key yet: the hold waits for the first.");
    return exit;
  },
});
