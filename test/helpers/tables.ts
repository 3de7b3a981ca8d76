// The tables of a page, so that a test can hold their figures against what the engine does.
import { readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Each table as rows of cells, the head first. */
export async function tablesOf(page: string): Promise<readonly (readonly (readonly string[])[])[]> {
  const text = await readFile(path.join(ROOT, page), "utf8");
  return [...text.matchAll(/(?:^\|.*\|\n)+/gm)].map(([table]) =>
    table
      .trimEnd()
      .split("\n")
      .filter((line) => !/^[|\- ]+$/.test(line))
      .map((line) =>
        line
          .split(/(?<!\\)\|/)
          .slice(1, -1)
          .map((cell) => cell.trim()),
      ),
  );
}
