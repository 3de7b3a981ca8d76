import { appendFile, readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { defineCommand, EXIT, UsageError } from "./command.ts";
import { JSON_OPTION, YES } from "./input/options.ts";
import { onlyCounts, say, sayJson, tell, unlessYes } from "./output/say.ts";
import { type Code, CRONTAB, type Found, type StarterFile, starterOf } from "./output/starter.ts";

/** Adds a policy, the preset and the crontab's line to a project. Safe to repeat: it writes only what is not there. */
export const command = defineCommand({
  options: {
    task: { kind: "text", required: true, meaning: "the task whose jobs the policy limits" },
    "partition-by": {
      kind: "text",
      required: true,
      meaning: "path into its payloads, to the value by which it limits, such as tenant.id",
    },
    ...YES,
    ...JSON_OPTION,
  },
  examples: [
    ["--task fetch_endpoint --partition-by endpointId", "show the files for this project"],
    ["--task fetch_endpoint --partition-by endpointId --yes", "write them"],
  ],
  about:
    "It works in the current folder, and needs no database. It changes no code that is there: it says what to add.",
  async run(values) {
    const { task, "partition-by": partitionBy } = values;
    const { files, steps } = starterOf(await lookAround(task), task, partitionBy);
    const only = onlyCounts(values);
    if (!only) for (const file of files) await write(file);
    if (values.json) sayJson({ files, steps, written: !only });
    else {
      for (const { name, text, isAdded } of files)
        if (only) say(`Would ${isAdded ? "add to" : "write"} ${name}:\n\n${text}`);
        else say(`${isAdded ? "Added a line to" : "Wrote"} ${name}.`);
      if (files.length === 0)
        say(steps.length > 0 ? "There is no file to write." : "All is there: nothing is left to write.");
      for (const step of steps) say(step);
    }
    if (files.length > 0 && only) return unlessYes(values);
    tell(
      "Then start the worker: node_modules/.bin/graphile-worker. The command doctor says whether all is well.",
    );
    return EXIT.done;
  },
});

/** A file that came to be in between stays as it is: that is an error. */
async function write({ name, text, isAdded }: StarterFile): Promise<void> {
  if (isAdded) await appendFile(name, text);
  else await writeFile(name, text, { flag: "wx" });
}

async function lookAround(task: string): Promise<Found> {
  const names = await readdir(".");
  const tasks = await readdir("tasks").catch(ifMissing([]));
  return {
    isModule: (await readManifest()).type === "module",
    isTypeScript: names.some((name) => name === "tsconfig.json" || name.endsWith(".ts")),
    config: await readFirst(names, (name) => name.startsWith("graphile.config.")),
    policies: await readFirst(names, (name) => /^policies\.[cm]?[jt]s$/.test(name)),
    crontab: await readFile(CRONTAB, "utf8").catch(ifMissing(undefined)),
    hasTask: tasks.some((name) => path.parse(name).name === task),
  };
}

async function readFirst(
  names: readonly string[],
  isIt: (name: string) => boolean,
): Promise<Code | undefined> {
  const name = names.find(isIt);
  return name === undefined ? undefined : { name, text: await readFile(name, "utf8") };
}

async function readManifest(): Promise<{ readonly type?: unknown }> {
  const text = await readFile("package.json", "utf8").catch(ifMissing(undefined));
  if (text === undefined)
    throw new UsageError("there is no package.json here: go to the project's folder, or call npm init");
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UsageError(`package.json is no JSON: ${(error as Error).message}`);
  }
}

/** What stands in for a file that is not there. Any other error is one. */
function ifMissing<T>(instead: T): (error: unknown) => T {
  return (error) => {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return instead;
  };
}
