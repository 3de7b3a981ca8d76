// scripts/release.ts on throwaway repositories: what it refuses, and what it does when asked to.
import { spawn, spawnSync } from "node:child_process";
import { appendFile, chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";

const SCRIPT = fileURLToPath(new URL("../../scripts/release.ts", import.meta.url));
const NOTES = "### Added\n\n- It *works*.\n# not a comment of git";
const ENV = {
  ...process.env,
  ...{ GIT_CONFIG_GLOBAL: os.devNull, GIT_CONFIG_NOSYSTEM: "1" },
  ...{ GIT_AUTHOR_NAME: "a", GIT_AUTHOR_EMAIL: "a@example.org" },
  ...{ GIT_COMMITTER_NAME: "a", GIT_COMMITTER_EMAIL: "a@example.org" },
};

test("a yes tags the commit, pushes the tag, and prints the changelog's section word for word", async (t) => {
  const { folder, git } = await repository(t);
  const { code, stdout, stderr } = await release(folder, { answers: ["yes"] });
  t.is(code, 0, stderr);
  t.is(stdout, `${NOTES}\n`);
  t.regex(stderr, /INSTEAD OF THE TESTS this runs: true/);
  t.regex(stderr, /The tests did NOT run\. Tag [0-9a-f]{12} as v1\.2\.0, and push the tag to origin\?/);
  t.is(git("rev-parse", "v1.2.0^{commit}"), git("rev-parse", "HEAD"));
  t.is(git("tag", "--list", "--format=%(contents)", "v1.2.0"), `v1.2.0\n\n${NOTES}`);
  t.regex(git("ls-remote", "--tags", "origin"), /refs\/tags\/v1\.2\.0$/m);
  t.deepEqual(await published(folder), []);
});

test("--notes writes the notes to a file, and --publish asks before it publishes", async (t) => {
  const { folder } = await repository(t);
  const notes = path.join(folder, "..", "notes.md");
  const args = ["--notes", notes, "--publish"];
  const { code, stdout, stderr } = await release(folder, { args, answers: ["yes", "yes"] });
  t.is(code, 0, stderr);
  t.is(stdout, "");
  t.is(await readFile(notes, "utf8"), NOTES);
  t.regex(stderr, /Publish it@1\.2\.0 to npm from this machine\?/);
  t.deepEqual(await published(folder), ["publish --provenance=false"]);
});

test("a no to publishing leaves the tag", async (t) => {
  const { folder, git } = await repository(t);
  const { code, stderr } = await release(folder, { args: ["--publish"], answers: ["yes", "no"] });
  t.is(code, 1);
  t.regex(stderr, /No release: the answer was not "yes": v1\.2\.0 is pushed, and nothing was published/);
  t.is(git("tag"), "v1.2.0");
  t.deepEqual(await published(folder), []);
});

test("a publish that fails says how to go on", async (t) => {
  const { folder } = await repository(t);
  await writeFile(path.join(folder, "../bin/npm"), "#!/bin/sh\nexit 1\n");
  const { code, stderr } = await release(folder, { args: ["--publish"], answers: ["yes", "yes"] });
  t.is(code, 1);
  t.regex(
    stderr,
    /npm publish failed: the tag is pushed, so mend it and run `npm publish --provenance=false`/,
  );
});

for (const answers of [["no"], ["y"], []])
  test(`the answer ${answers[0] ?? "of nobody"} tags nothing`, async (t) => {
    const { folder, git } = await repository(t);
    const { code, stderr } = await release(folder, { answers });
    t.is(code, 1);
    t.regex(stderr, /No release: the answer was not "yes": nothing was tagged/);
    t.is(git("tag"), "");
  });

type Spoil = (at: Awaited<ReturnType<typeof repository>>) => unknown;
const commits =
  (file: string, content: string): Spoil =>
  async ({ folder, git }) => {
    await writeFile(path.join(folder, file), content);
    git("commit", "--quiet", "--all", "--message", "spoil");
    git("push", "--quiet", "origin", "HEAD");
  };

const REFUSALS: readonly (readonly [string, Spoil, RegExp, { tests?: string }?])[] = [
  ["failing tests", () => {}, /exit 3 failed: mend what it names/, { tests: "exit 3" }],
  [
    "a package without a repository",
    commits("package.json", '{ "name": "it", "version": "1.2.0" }'),
    /package\.json has no repository: run `npm pkg set repository\.type=git repository\.url=/,
  ],
  [
    "a README for what is not published",
    commits("README.md", "It is not published yet."),
    /README\.md says that the package is not published yet: put its `npm install` line there/,
  ],
  [
    "a changelog without the version",
    commits("CHANGELOG.md", "## [Unreleased]\n\n- All.\n"),
    /has no section of 1\.2\.0: put `## \[1\.2\.0\] - \d{4}-\d\d-\d\d` below/,
  ],
  [
    "a version without a date",
    commits("CHANGELOG.md", "## [1.2.0]\n\n- All.\n"),
    /says "## \[1\.2\.0\]", expected a date as in `## \[1\.2\.0\] - \d{4}-\d\d-\d\d`/,
  ],
  [
    "a date that is none",
    commits("CHANGELOG.md", "## [1.2.0] - 2026-13-01\n\n- All.\n"),
    /says "## \[1\.2\.0\] - 2026-13-01", expected a date/,
  ],
  [
    "an empty section",
    commits("CHANGELOG.md", "## [1.2.0] - 2026-12-01\n\n## [1.1.0] - 2026-11-01\n\n- Old.\n"),
    /says nothing below "## \[1\.2\.0\] - 2026-12-01": write what changed/,
  ],
  [
    "a changed file",
    ({ folder }) => appendFile(path.join(folder, "README.md"), "more"),
    /the tree is not clean: commit or stash these changes\n.*README\.md/,
  ],
  [
    "a new file",
    ({ folder }) => writeFile(path.join(folder, "new.txt"), ""),
    /the tree is not clean: commit or stash these changes\n\?\? new\.txt/,
  ],
  [
    "another branch",
    ({ git }) => git("switch", "--quiet", "--create", "next"),
    /the branch is next, expected main: run `git switch main`/,
  ],
  [
    "no branch",
    ({ git }) => git("switch", "--quiet", "--detach"),
    /the branch is none, expected main: run `git switch main`/,
  ],
  [
    "a commit that origin does not have",
    ({ git }) => git("commit", "--quiet", "--allow-empty", "--message", "mine"),
    /main is 1 commits ahead of origin and 0 behind: run `git pull --rebase` and `git push`/,
  ],
  [
    "a commit of origin that is not here",
    ({ git }) => {
      git("commit", "--quiet", "--allow-empty", "--message", "theirs");
      git("push", "--quiet", "origin", "main");
      git("reset", "--quiet", "--hard", "HEAD~1");
    },
    /main is 0 commits ahead of origin and 1 behind: run `git pull --rebase`/,
  ],
  [
    "an origin that does not answer",
    ({ git }) => git("remote", "set-url", "origin", "/nowhere"),
    /`git fetch` failed: .*\/nowhere/s,
  ],
  [
    "a tag that is here",
    ({ git }) => git("tag", "v1.2.0"),
    /the tag v1\.2\.0 exists here: raise the version with `npm version --no-git-tag-version`/,
  ],
  [
    "a tag that is on origin",
    ({ git }) => git("push", "--quiet", "origin", "HEAD:refs/tags/v1.2.0"),
    /the tag v1\.2\.0 exists on origin: raise the version/,
  ],
  [
    "a commit while the tests run",
    () => {},
    /HEAD moved while the tests ran: start again/,
    { tests: "git commit --quiet --allow-empty --message meanwhile && git push --quiet origin main" },
  ],
  [
    "a change while the tests run",
    () => {},
    /the tree is not clean: commit or stash these changes\n\?\? left\.txt/,
    { tests: "touch left.txt" },
  ],
];

for (const [what, spoil, expected, options] of REFUSALS)
  test(`refused: ${what}`, async (t) => {
    const at = await repository(t);
    await spoil(at);
    const before = at.git("tag");
    const { code, stdout, stderr } = await release(at.folder, { answers: ["yes"], ...options });
    t.is(code, 1, stderr);
    t.regex(stderr, /^No release: /m);
    t.regex(stderr, expected);
    t.is(stdout, "");
    t.is(at.git("tag"), before);
  });

test("a tag that origin refuses is removed, so that the next attempt finds it new", async (t) => {
  const { folder, git } = await repository(t);
  const hook = path.join(folder, "../origin.git/hooks/pre-receive");
  await writeFile(hook, "#!/bin/sh\necho protected; exit 1\n");
  await chmod(hook, 0o755);
  const { code, stderr } = await release(folder, { answers: ["yes"] });
  t.is(code, 1);
  t.regex(stderr, /No release: `git push` failed: .*protected/s);
  t.is(git("tag"), "");
});

test("without --tests it runs ./scripts/test, and does not say that it was replaced", async (t) => {
  const { folder } = await repository(t);
  const { code, stderr } = await release(folder, { tests: "", answers: ["yes"] });
  t.is(code, 0, stderr);
  t.regex(stderr, /^the real tests$/m);
  t.notRegex(stderr, /NOT run|INSTEAD/);
});

/** A repository that may be released, beside its origin, and a folder with an npm that only notes its arguments. */
async function repository(t: ExecutionContext) {
  const parent = await mkdtemp(path.join(os.tmpdir(), "release-"));
  t.teardown(() => rm(parent, { recursive: true, force: true }));
  const folder = path.join(parent, "it");
  const git = (...args: string[]): string => {
    const { status, stdout, stderr } = spawnSync("git", args, { cwd: folder, env: ENV, encoding: "utf8" });
    if (status !== 0) throw new Error(`git ${args.join(" ")}: ${stderr}`);
    return stdout.trim();
  };
  await mkdir(path.join(folder, "scripts"), { recursive: true });
  await mkdir(path.join(parent, "bin"));
  const files = {
    "package.json": '{ "name": "it", "version": "1.2.0", "repository": "https://example.org/it.git" }',
    "README.md": "npm install it",
    "CHANGELOG.md": `# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-12-01\n\n${NOTES}\n\n## [1.1.0] - 2026-11-01\n\n- Old.\n`,
    "scripts/test": "#!/bin/sh\necho the real tests\n",
    "../bin/npm": '#!/bin/sh\necho "$@" >> ../npm.log\n',
  };
  for (const [name, content] of Object.entries(files)) await writeFile(path.join(folder, name), content);
  for (const name of ["scripts/test", "../bin/npm"]) await chmod(path.join(folder, name), 0o755);
  git("init", "--quiet", "--initial-branch", "main");
  git("add", ".");
  git("commit", "--quiet", "--message", "begin");
  git("init", "--quiet", "--bare", "../origin.git");
  git("remote", "add", "origin", "../origin.git");
  git("push", "--quiet", "origin", "main");
  return { folder, git };
}

/** Runs the script, with answers on its standard input. `tests: ""` leaves the tests in place. */
async function release(
  folder: string,
  { args = [], answers, tests = "true" }: { args?: string[]; answers: string[]; tests?: string },
) {
  const replaced = tests === "" ? [] : ["--tests", tests];
  const child = spawn(process.execPath, [SCRIPT, ...args, ...replaced], {
    cwd: folder,
    env: { ...ENV, PATH: `${path.join(folder, "../bin")}${path.delimiter}${process.env.PATH}` },
  });
  child.stdin.on("error", () => {}); // it may end without reading
  child.stdin.end(answers.map((answer) => `${answer}\n`).join(""));
  const code = new Promise<number | null>((resolve) => child.once("close", resolve));
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  return { code: await code, stdout, stderr };
}

async function published(folder: string): Promise<string[]> {
  const log = await readFile(path.join(folder, "../npm.log"), "utf8").catch(() => "");
  return log.split("\n").filter((line) => line !== "");
}
