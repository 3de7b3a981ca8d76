#!/usr/bin/env node
import { EXIT, UsageError } from "./command.ts";
import { tell } from "./output/say.ts";
import { type Call, NAME, readCall } from "./parser.ts";

async function main(args: readonly string[]): Promise<number> {
  let call: Call | null = null;
  try {
    call = await readCall(args);
    return call === null ? EXIT.done : await call.run();
  } catch (error) {
    const { explained } = await import("./output/failure.ts");
    const { message, exit } = explained(error);
    const name = call?.name ?? (error instanceof UsageError ? error.command : undefined);
    tell(name ? `${name}: ${withoutVerb(name, message)}` : message);
    if (error instanceof UsageError) tell(`See ${NAME} ${name ? `${name} ` : ""}--help`);
    return exit;
  }
}

/** A verb's error begins with its name in SQL or TypeScript: release_slots or releaseSlots for release-slots. */
function withoutVerb(name: string, message: string): string {
  return message.replace(new RegExp(`^${name.replace("-", "_?")}: `, "i"), "");
}

// whoever reads the output may have enough of it, as head does
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit(EXIT.done);
});
process.exitCode = await main(process.argv.slice(2));
