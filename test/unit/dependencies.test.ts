// What a user installs with the package is what its code imports: no more, no less.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "ava";

const ROOT = new URL("../../", import.meta.url);
/** Also what browsers load: a file of a package that is served as it is. */
const IMPORT = /^(?:import|export)\b[^;]*?\bfrom "([^".][^"]*)"|(?<=\bresolve\()"([^".][^"]*)"/gm;

function packageOf(specifier: string): string {
  return specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");
}

function importsOf(folder: string): string[] {
  return readdirSync(fileURLToPath(new URL(folder, ROOT)), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .flatMap((name) => [...readFileSync(new URL(`${folder}/${name}`, ROOT), "utf8").matchAll(IMPORT)])
    .map(([, imported, served]) => packageOf((imported ?? served) as string))
    .filter((name) => !name.startsWith("node:"));
}

/** What is loaded by its name, because its types are not for everybody. */
const BY_NAME = ["@electric-sql/pglite"];

test("dependencies and peer dependencies are the packages that src and tasks import", (t) => {
  const { dependencies, peerDependencies } = JSON.parse(readFileSync(new URL("package.json", ROOT), "utf8"));
  const declared = Object.keys({ ...dependencies, ...peerDependencies }).toSorted();
  t.deepEqual([...new Set([...importsOf("src"), ...importsOf("tasks"), ...BY_NAME])].toSorted(), declared);
});

test("what names a version of PGlite names the one that the tests run with", (t) => {
  const read = (file: string) => readFileSync(new URL(file, ROOT), "utf8");
  const version = JSON.parse(read("package.json")).devDependencies["@electric-sql/pglite"];
  const files = [
    "docs/testing.md",
    "docs/production.md",
    "src/testing/pglite-pool.ts",
    "src/testing/virtual-clock.ts",
    "src/operate/diff.ts",
  ];
  for (const file of files) t.true(read(file).includes(version), file);
});
