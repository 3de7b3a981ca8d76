import { connected } from "../db/looking.ts";
import { refreshContext } from "../operate/refresh-context.ts";
import { makeRegistry } from "../policy/registry.ts";
import { defineCommand } from "./command.ts";
import { contextOf, DRY_RUN, POLICY, valuesOf, WHY, whereOf, whyOf } from "./input/options.ts";
import { inPlace, placeOf } from "./input/place.ts";
import { answer, answerReach } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

/** Changes what the context of partitions holds. The policies of the configuration work out the limits anew. */
export const command = defineCommand({
  options: {
    ...POLICY,
    partition: { kind: "text", meaning: "the key of one of its partitions", default: "all" },
    where: {
      kind: "texts",
      meaning: "only partitions with NAME=VALUE in their context; several: with all of them",
      default: "any",
    },
    context: {
      kind: "texts",
      required: true,
      meaning: "NAME=VALUE that their context has from now on; may be repeated",
    },
    ...DRY_RUN,
    ...WHY,
  },
  examples: [
    ["--policy fetch_endpoint --where account=acme --context plan=pro", "acme has another plan"],
    [
      "--policy fetch_endpoint --partition ep1 --context max=5 --config graphile.config.ts",
      "a limit reads max",
    ],
  ],
  about:
    "A later job brings its own context. If limits, scopes or the weight are functions of the context, the command " +
    "needs the policy: read from the configuration, as the workers have it.",
  async run(values) {
    const { policy, partition, "dry-run": dryRun } = values;
    const context = contextOf(values.context);
    const where = whereOf(values.where);
    const place = await placeOf(values);
    const registry = makeRegistry(place.options?.policies ?? []);
    const result = await inPlace(place, connected, (operating) =>
      refreshContext(
        { ...operating, registry },
        { policy, partition, where, context, dryRun, ...whyOf(values) },
      ),
    );
    const { matched, changed } = result;
    const set = valuesOf(context);
    if (dryRun) return answerReach(values, result, `Would change the context to ${set}`);
    return answer(
      values,
      result,
      `Changed the context of ${grouped(changed)} of ${some(matched, "partition")} to ${set}.`,
    );
  },
});
