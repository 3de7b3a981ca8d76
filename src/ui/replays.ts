import { ArgumentError, MissingPackageError } from "../errors.ts";
import type { Diff } from "../operate/diff.ts";
import { html, type Markup } from "./parts/markup.ts";
import { whatIf } from "./parts/what-if.ts";

/** Replays of recorded loads, for pages. */
export interface Replays {
  /** Runs a replay, and says what it found, or why there is none. */
  run(replay: () => Promise<Diff>): Promise<Markup>;
}

/** A replay takes 0.6 GB and seconds of a processor, in the process that serves the pages. So there is one at a time. */
export function makeReplays(): Replays {
  let isBusy = false;
  return {
    async run(replay) {
      if (isBusy) return refusal("A replay is running already. Ask again in a moment.");
      isBusy = true;
      try {
        return whatIf(await replay());
      } catch (error) {
        if (error instanceof ArgumentError || error instanceof MissingPackageError)
          return refusal(error.message);
        throw error;
      } finally {
        isBusy = false;
      }
    },
  };
}

function refusal(why: string): Markup {
  return html`<p class="bad" role="alert">${why}</p>`;
}
