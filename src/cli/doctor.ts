import { doctor, type Finding } from "../operate/doctor.ts";
import { defineCommand, EXIT } from "./command.ts";
import { LOOK } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { say, sayJson } from "./output/say.ts";
import { visible, wrapped } from "./output/table.ts";

/** Says what is wrong, and what mends it. */
export const command = defineCommand({
  options: LOOK,
  examples: [
    ["", "what is wrong, the worst first"],
    ["--json", "one finding on each line"],
  ],
  about: "It ends with exit code 1 if a finding is critical. docs/operating.md explains each.",
  async run(values) {
    return looks(values, async (context) => {
      const findings = await doctor(context);
      if (values.json) for (const finding of findings) sayJson(finding);
      else say(findings.map(inLines).join("\n\n") || "Nothing is wrong.");
      return findings.some(({ severity }) => severity === "critical") ? EXIT.failed : EXIT.done;
    });
  },
});

/** What mends it may be copied, so it is not broken into lines. */
function inLines({ id, severity, sentence, mend }: Finding): string {
  return `${wrapped(visible(`${severity}  ${id}: ${sentence}`))}\n${mend.replaceAll(/^/gm, "    ")}`;
}
