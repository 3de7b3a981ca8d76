/** What one test file has come to. */
export interface FileResults {
  readonly passed: number;
  readonly skipped: number;
  /** The titles of the tests that failed. */
  readonly failures: readonly string[];
  /** Between its first test and its last. */
  readonly seconds: number;
}

export interface TapResults {
  readonly files: Map<string, FileResults>;
  /** Failures of no known file. */
  readonly unplaced: readonly string[];
  /** The lines of each failure, as AVA has them. */
  readonly details: readonly string[];
  /** Whether AVA came to its end. */
  readonly complete: boolean;
  /** The last test that ended. */
  readonly last: string | null;
}

const TEST = /^(not ok|ok) \d+ - (.*)$/;
const SEPARATOR = " › ";

/**
 * Reads AVA's TAP. Its titles begin with the file, without the folders that all files of the run have in common. A run of one
 * file has titles alone, and a file that died is named in a line of its own.
 */
export function readTap(files: readonly string[]) {
  const bySuffix = suffixesOf(files);
  const found = new Map<string, { passed: number; skipped: number; failures: string[]; seconds: number }>();
  const began = new Map<string, number>();
  const crashes: string[] = [];
  const details: string[] = [];
  let failing = false;
  let complete = false;
  let last: string | null = null;

  function place(text: string): { file: string; title: string } | null {
    const died = files.find(
      (file) => text.startsWith(`${file} exited`) || text === `No tests found in ${file}`,
    );
    if (died) return { file: died, title: text.slice(died.length + 1) || text };
    const parts = text.split(SEPARATOR);
    for (let n = parts.length - 1; n > 0; n--) {
      const [file, other] = bySuffix.get(parts.slice(0, n).join(SEPARATOR)) ?? [];
      if (file && !other) return { file, title: parts.slice(n).join(SEPARATOR) };
    }
    return files.length === 1 ? { file: files[0] as string, title: text } : null;
  }

  return {
    read(line: string): void {
      if (/^1\.\.\d/.test(line)) complete = true;
      const [, verdict, text] = TEST.exec(line) ?? [];
      if (verdict || /^(1\.\.|#)/.test(line)) failing = verdict === "not ok";
      if (failing && verdict) details.push(line);
      else if (failing) details[details.length - 1] += `\n${line}`;
      if (!verdict || text === undefined) return;
      const [name = "", directive = ""] = text.split(/ # (?=SKIP|TODO)/);
      last = name;
      const at = place(name);
      if (!at) {
        crashes.push(name);
        return;
      }
      const one = found.get(at.file) ?? { passed: 0, skipped: 0, failures: [], seconds: 0 };
      const first = began.get(at.file) ?? performance.now();
      began.set(at.file, first);
      one.seconds = (performance.now() - first) / 1000;
      found.set(at.file, one);
      if (directive) one.skipped++;
      else if (verdict === "ok") one.passed++;
      else one.failures.push(at.title);
    },
    results(): TapResults {
      // an uncaught error has no file in its line, but its process ends because of it, and that line has
      const explained = [...found.values()].some(({ failures }) =>
        failures.some((one) => /^exited/.test(one)),
      );
      return { files: new Map(found), unplaced: explained ? [] : crashes, details, complete, last };
    },
  };
}

/** "features › ahead" and "ahead" of test/features/ahead.test.ts, each with the files that end so. */
function suffixesOf(files: readonly string[]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const file of files) {
    const parts = file.replace(/\.test\.ts$/, "").split("/");
    for (let from = 0; from < parts.length; from++) {
      const suffix = parts.slice(from).join(SEPARATOR);
      found.set(suffix, [...(found.get(suffix) ?? []), file]);
    }
  }
  return found;
}
