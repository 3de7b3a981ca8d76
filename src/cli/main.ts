#!/usr/bin/env node
import { adoptCommand } from "./adopt.ts";
import { doctorCommand } from "./doctor.ts";
import { explainCommand } from "./explain.ts";
import { handBackCommand } from "./hand-back.ts";
import { migrateCommand } from "./migrate.ts";
import { removePolicyCommand } from "./remove-policy.ts";
import { retryCommand } from "./retry.ts";
import { uninstallCommand } from "./uninstall.ts";

/** One command a file; each says what it takes and does. */
interface Command {
  readonly summary: string;
  /** A line for each option of its own. */
  readonly help: string;
  /** Resolves to the exit code, if that is not 0. */
  run(args: string[]): Promise<void> | Promise<number>;
}

const COMMANDS: Record<string, Command> = {
  migrate: migrateCommand,
  adopt: adoptCommand,
  explain: explainCommand,
  doctor: doctorCommand,
  retry: retryCommand,
  "hand-back": handBackCommand,
  "remove-policy": removePolicyCommand,
  uninstall: uninstallCommand,
};

const USAGE = `Usage: graphile-worker-dispatch-policy <command> [options]

Commands:
${Object.entries(COMMANDS)
  .map(([name, { summary }]) => `  ${name.padEnd(15)}${summary}`)
  .join("\n")}

Options of every command:
  -c, --connection URL   PostgreSQL connection; default: DATABASE_URL
  --schema NAME          Graphile Worker's schema; default: GRAPHILE_WORKER_SCHEMA, else graphile_worker
  --policy-schema NAME   this package's schema; default: DISPATCH_POLICY_SCHEMA, else dispatch_policy

${Object.entries(COMMANDS)
  .map(([name, { help }]) => `Options of ${name}:\n${help}`)
  .join("\n\n")}
`;

async function main([name, ...args]: string[]): Promise<number> {
  const command = COMMANDS[name ?? ""];
  if (name === undefined || name === "--help" || name === "-h") {
    process.stdout.write(USAGE);
    return name === undefined ? 2 : 0;
  }
  if (!command) {
    process.stderr.write(`unknown command "${name}"\n\n${USAGE}`);
    return 2;
  }
  if (args.includes("--help") || args.includes("-h")) {
    process.stdout.write(USAGE);
    return 0;
  }
  try {
    return (await command.run(args)) ?? 0;
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  }
}

process.exitCode = await main(process.argv.slice(2));
