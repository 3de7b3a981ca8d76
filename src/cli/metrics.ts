import { asText } from "../metrics/text.ts";
import { figures } from "../operate/metrics.ts";
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
      const found = await figures(context);
      if (values.json) for (const figure of found) sayJson(figure);
      else process.stdout.write(asText(found));
      return EXIT.done;
    });
  },
});
