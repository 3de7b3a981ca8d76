import { parseArgs } from "node:util";
import { makeEngine } from "../db/engine.ts";
import { looking } from "../db/looking.ts";
import { doctor } from "../operate/doctor.ts";
import { schemaOf } from "../settings.ts";
import { CONNECTION_OPTIONS, connectionOf } from "./connection.ts";

/** Says what is wrong, and what mends it. It only reads. Exit code 1: something critical was found. */
export const doctorCommand = {
  summary: "say what is wrong, and what mends it; exit code 1 if it is critical",
  help: `\
  --json                 print the findings as JSON; default: off`,
  async run(args: string[]): Promise<number> {
    const { values } = parseArgs({ args, options: { ...CONNECTION_OPTIONS, json: { type: "boolean" } } });
    const { connectionString, policySchema } = connectionOf(values);
    const engine = makeEngine(schemaOf(policySchema));
    const findings = await looking(connectionString, (withPgClient) => doctor({ withPgClient, engine }));
    const lines = findings.map(
      ({ id, severity, sentence, mend }) =>
        `${severity}  ${id}: ${sentence}\n${mend.replaceAll(/^/gm, "    ")}\n`,
    );
    const text = lines.join("\n") || "Nothing is wrong.\n";
    process.stdout.write(values.json ? `${JSON.stringify(findings)}\n` : text);
    return findings.some(({ severity }) => severity === "critical") ? 1 : 0;
  },
};
