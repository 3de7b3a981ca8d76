import { noEvents } from "../events.ts";
import { tick } from "../operate/tick.ts";
import { readSettings } from "../settings.ts";
import { defineCommand, EXIT } from "./command.ts";
import { JSON_OPTION, ONLY_POLICY } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { say, sayJson, tell } from "./output/say.ts";
import { fromNow, inWords, some } from "./output/words.ts";

/** One admission pass. It knows no policies: jobs whose partition needs their code wait for a worker. */
export const command = defineCommand({
  options: {
    ...ONLY_POLICY,
    shard: { kind: "text", meaning: "only this shard", default: "all" },
    ...JSON_OPTION,
  },
  examples: [["--policy fetch_endpoint", "admit what the gates let go now"]],
  about: "Workers and the crontab's task tick by themselves: this is for when none does.",
  async run(values) {
    const { policy, shard } = values;
    const { partitionBatchSize, registry } = readSettings({ policies: [] });
    const logger = { warn: tell, debug: () => {} };
    const result = await changing(values, (context) =>
      tick({ ...context, registry, events: noEvents, logger, partitionBatchSize }, { policy, shard }),
    );
    if (values.json) sayJson(result);
    else {
      const { admitted, claimed, denied, dropped, durationMs, nextEligibleAt } = result;
      say(`Admitted ${some(admitted, "job")} of ${some(claimed, "partition")} in ${inWords(durationMs)}.`);
      for (const [reason, partitions] of Object.entries(denied))
        say(`Left due jobs in ${some(partitions, "partition")}: ${reason}.`);
      if (dropped > 0) say(`Dropped ${some(dropped, "job")}.`);
      if (nextEligibleAt)
        say(`The next may go ${nextEligibleAt.getTime() > Date.now() ? fromNow(nextEligibleAt) : "now"}.`);
    }
    return EXIT.done;
  },
});
