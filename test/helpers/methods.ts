import { globSync, readFileSync } from "node:fs";

const ROOT = new URL("../../", import.meta.url).pathname;

/** The names of the utils' methods of this package: of the verbs, and of what looks. */
export function methodsOfUtils(): readonly string[] {
  const sources = globSync("src/operate/{operate,verbs/*}.ts", { cwd: ROOT });
  const all = sources.map((file) => readFileSync(ROOT + file, "utf8")).join("\n");
  const bodies = [...all.matchAll(/^export interface (?:Operate|\w+Verbs)\b.*? \{\n(.*?)^\}$/gms)];
  return bodies.flatMap(([, body = ""]) =>
    [...body.matchAll(/^ {2}(\w+)[(<]/gm)].map(([, name = ""]) => name),
  );
}
