/**
 * Lets a process of this checkout import the package by its name, from the sources and without a build:
 *
 *   node --import ./scripts/from-sources.ts examples/fair-shares/main.ts
 */
import { registerHooks } from "node:module";

const NAME = "graphile-worker-dispatch-policy";
const ENTRIES = new Map([
  [NAME, "src/index.ts"],
  [`${NAME}/testing`, "src/testing.ts"],
  [`${NAME}/ui`, "src/ui/ui.ts"],
]);

registerHooks({
  resolve(specifier, context, next) {
    const entry = ENTRIES.get(specifier);
    if (!entry) return next(specifier, context);
    return {
      url: new URL(`../${entry}`, import.meta.url).href,
      format: "module-typescript",
      shortCircuit: true,
    };
  },
});
