import { figures, metrics } from "../operate/metrics.ts";
import { defineCommand, EXIT } from "./command.ts";
import { LOOK } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { sayJson } from "./output/say.ts";

/** The figures of all policies, for a monitoring system. */
export const command = defineCommand({
  options: LOOK,
  examples: [["> /var/lib/node_exporter/dispatch_policy.prom", "for node_exporter's textfile collector"]],
  about: "In Prometheus's text format. docs/production.md lists them. Totals may be half a minute old.",
  async run(values) {
    return looks(values, async (context) => {
      if (values.json) for (const figure of await figures(context)) sayJson(figure);
      else process.stdout.write(await metrics(context));
      return EXIT.done;
    });
  },
});
