import { counted } from "./counted.ts";
import { errorText } from "./error-text.ts";
import type { Logger } from "./log.ts";

/**
 * Logs the failures of something that is tried again until it succeeds. Each kind of failure is a warning once, and the end of
 * several is told: an outage of an hour is three lines, not a line a second.
 */
export function makeFailureLog(logger: Logger, fails: string, works: string) {
  const said = new Set<string>();
  let failures = 0;
  let since = 0;
  return {
    failed(error: unknown, text = `${fails}: ${errorText(error)}`): void {
      if (failures++ === 0) since = performance.now();
      // those that differ in a number are of one kind
      const kind = text.replace(/\d+/g, "0");
      if (said.has(kind)) logger.debug(text, { error });
      else logger.warn(text, { error });
      said.add(kind);
    },
    succeeded(): void {
      if (failures > 1)
        logger.info(
          `${works} again, after ${counted(failures, "failure")} in ${Math.round((performance.now() - since) / 1000)} s`,
        );
      failures = 0;
      said.clear();
    },
  };
}

export type FailureLog = ReturnType<typeof makeFailureLog>;
