/**
 * Releases the version in package.json, from the folder it is started in, or says why not:
 *
 *   scripts/release [--notes FILE] [--publish] [--tests COMMAND]
 *
 * It checks, runs the tests, prints the section of the changelog as release notes, asks, tags, and pushes the tag.
 * With --publish it asks again, and publishes from this machine. It uses git and npm only. --tests is for its own tests.
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const TESTS = "./scripts/test";

/** Why there is no release, and what to do. */
class Refusal extends Error {}

const { values: options } = parseArgs({
  options: {
    notes: { type: "string" },
    publish: { type: "boolean", default: false },
    tests: { type: "string", default: TESTS },
  },
});
const input = createInterface({ input: process.stdin });
const answers = input[Symbol.asyncIterator]();

try {
  await release();
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  console.error(`No release: ${error.message}`);
  process.exitCode = 1;
} finally {
  process.stdin.destroy();
}

async function release(): Promise<void> {
  const { name, version, repository } = JSON.parse(readFileSync("package.json", "utf8"));
  const tag = `v${version}`;
  checkHome(repository);
  const commit = checkGit(tag);
  const notes = notesOf(readFileSync("CHANGELOG.md", "utf8"), version);
  runTests();
  // the tests take minutes: somebody may have committed or pushed meanwhile
  if (checkGit(tag) !== commit) throw new Refusal("HEAD moved while the tests ran: start again");

  if (options.notes) writeFileSync(options.notes, notes);
  else console.log(notes);
  await ask(`Tag ${commit.slice(0, 12)} as ${tag}, and push the tag to origin?`, "nothing was tagged");
  pushTag(tag, commit, notes);
  console.error(`# ${tag} is on origin; its notes are ${options.notes ? `in ${options.notes}` : "above"}`);
  if (!options.publish) return;
  await ask(
    `Publish ${name}@${version} to npm from this machine?`,
    `${tag} is pushed, and nothing was published`,
  );
  publish();
}

/** npm leads the README's relative links to the repository, and compares it with the provenance. */
function checkHome(repository: unknown): void {
  if (!repository)
    throw new Refusal(
      "package.json has no repository: run `npm pkg set repository.type=git repository.url=git+https://…`, and commit",
    );
  if (/not published yet/.test(readFileSync("README.md", "utf8")))
    throw new Refusal(
      "README.md says that the package is not published yet: put its `npm install` line there, and commit",
    );
}

/** Resolves to the commit that would be released. */
function checkGit(tag: string): string {
  const branch = git("branch", "--show-current");
  if (branch !== "main")
    throw new Refusal(`the branch is ${branch || "none"}, expected main: run \`git switch main\``);
  const changes = git("status", "--porcelain");
  if (changes) throw new Refusal(`the tree is not clean: commit or stash these changes\n${changes}`);
  git("fetch", "--quiet", "--no-tags", "origin", "main");
  const [ahead, behind] = git("rev-list", "--left-right", "--count", "HEAD...FETCH_HEAD").split("\t");
  if (ahead !== "0" || behind !== "0")
    throw new Refusal(
      `main is ${ahead} commits ahead of origin and ${behind} behind: ` +
        `run \`git pull --rebase\` and \`git push\`, and wait until its checks pass`,
    );
  const where = git("tag", "--list", tag) ? "here" : git("ls-remote", "--tags", "origin", tag) && "on origin";
  if (where)
    throw new Refusal(
      `the tag ${tag} exists ${where}: raise the version with \`npm version --no-git-tag-version\``,
    );
  return git("rev-parse", "HEAD");
}

/** The section of a version, word for word. */
function notesOf(changelog: string, version: string): string {
  const sections = changelog.split(/^(?=## )/m);
  const section = sections.find((text) => text.startsWith(`## [${version}]`));
  const heading = `## [${version}] - ${new Date().toISOString().slice(0, 10)}`;
  if (!section)
    throw new Refusal(
      `CHANGELOG.md has no section of ${version}: put \`${heading}\` below \`## [Unreleased]\`, and commit`,
    );
  const [first = "", ...lines] = section.split("\n");
  const date = /^ - (\d{4}-\d{2}-\d{2})$/.exec(first.slice(`## [${version}]`.length))?.[1];
  if (!date || Number.isNaN(Date.parse(date)))
    throw new Refusal(
      `CHANGELOG.md says "${first}", expected a date as in \`${heading}\`: write it, and commit`,
    );
  const notes = lines.join("\n").trim();
  if (!notes) throw new Refusal(`CHANGELOG.md says nothing below "${first}": write what changed, and commit`);
  return notes;
}

function runTests(): void {
  if (options.tests !== TESTS) console.error(`# INSTEAD OF THE TESTS this runs: ${options.tests}`);
  const { status } = spawnSync(options.tests, { shell: true, stdio: ["ignore", 2, 2] });
  if (status !== 0) throw new Refusal(`${options.tests} failed: mend what it names`);
}

async function ask(question: string, otherwise: string): Promise<void> {
  const warned = options.tests === TESTS ? question : `The tests did NOT run. ${question}`;
  process.stderr.write(`${warned} [yes/no] `);
  const { value } = await answers.next();
  if (value?.trim() !== "yes") throw new Refusal(`the answer was not "yes": ${otherwise}`);
}

function pushTag(tag: string, commit: string, notes: string): void {
  // verbatim: git would remove the headings as comments
  git("tag", "--annotate", "--cleanup=verbatim", "--message", `${tag}\n\n${notes}`, tag, commit);
  try {
    git("push", "--quiet", "origin", `refs/tags/${tag}`);
  } catch (error) {
    git("tag", "--delete", tag); // so that the next attempt finds it new
    throw error;
  }
}

/** Without provenance, which npm makes only in a workflow. */
function publish(): void {
  input.close(); // npm may ask for a one-time password
  const { status } = spawnSync("npm", ["publish", "--provenance=false"], {
    stdio: ["inherit", 2, 2],
    shell: process.platform === "win32", // npm is a batch file there
  });
  if (status !== 0)
    throw new Refusal(
      "npm publish failed: the tag is pushed, so mend it and run `npm publish --provenance=false`",
    );
}

function git(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync("git", args, { encoding: "utf8" });
  if (status !== 0) throw new Refusal(`\`git ${args[0]}\` failed: ${stderr.trim()}`);
  return stdout.trim();
}
