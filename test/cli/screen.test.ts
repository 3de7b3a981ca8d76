// On a terminal: colours, and the live screen. util-linux's `script` gives the command one, so this is for Linux.
import { spawn } from "node:child_process";
import { stripVTControlCharacters } from "node:util";
import test, { type ExecutionContext } from "ava";
import { MAIN } from "../helpers/command.ts";
import { until } from "../helpers/until.ts";
import { world } from "./world.ts";

const onLinux = process.platform === "linux" ? test.serial : test.serial.skip;

const ENTER = "\x1b[?1049h";
const LEAVE = "\x1b[?25h\x1b[?1049l";

const EXITED = /exited with (\d+)\r\n$/;

/**
 * A command with a terminal, of 24 lines and 100 columns unless it says otherwise. `script` may end before it has read all that a command said
 * at last, so the shell outlives the command, and says how it exited.
 */
function onTerminal(
  t: ExecutionContext,
  url: string,
  line: string,
  { size = "rows 24 cols 100", ...env }: NodeJS.ProcessEnv & { size?: string } = {},
) {
  // Node takes a terminal that has CI in its environment for one without colours
  const { NO_COLOR: _, FORCE_COLOR: __, CI: ___, ...inherited } = process.env;
  const command = `stty ${size}; ${process.execPath} ${MAIN} ${line}; echo exited with $?; read line`;
  const child = spawn("script", ["-qec", command, "/dev/null"], {
    env: { ...inherited, TERM: "xterm", DATABASE_URL: url, NODE_NO_WARNINGS: "1", ...env },
  });
  t.teardown(() => child.kill("SIGKILL"));
  let said = "";
  child.stdout.on("data", (text) => (said += text));
  return {
    said: () => said.replace(EXITED, ""),
    type: (keys: string) => child.stdin.write(keys),
    exited: async () => {
      await until("it exited", () => EXITED.test(said));
      return Number(EXITED.exec(said)?.[1]);
    },
  };
}

for (const [name, keys] of [
  ["q", "q"],
  ["ctrl-c", "\x03"],
] as const)
  onLinux(`top draws frames until ${name}, and gives the terminal back`, async (t) => {
    const { url, utils } = await world(t);
    const top = onTerminal(t, url, "top");
    await until("the first frame is there", () => top.said().includes("No worker pool is known."));
    t.true(top.said().startsWith(ENTER));
    t.regex(top.said(), /fetch_endpoint +on, no worker +15 +\d+ m?s +3 +–/);
    await utils.admit({ policy: "fetch_endpoint", partition: "ep3", count: 2 });
    await until("a later frame has a pace", () =>
      /fetch_endpoint +on, no worker +13 +\d+ m?s +5 +[1-9]/.test(top.said()),
    );
    top.type(keys);
    t.is(await top.exited(), 0);
    t.true(top.said().endsWith(LEAVE));
  });

onLinux("top gives the terminal back if the database goes away, and says why", async (t) => {
  const { url, pool } = await world(t);
  const top = onTerminal(t, url, "top");
  await until("the first frame is there", () => top.said().includes("No worker pool is known."));
  await pool.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'dispatch_policy'",
  );
  t.is(await top.exited(), 1);
  t.true(top.said().slice(top.said().indexOf(ENTER)).includes(LEAVE));
  t.regex(top.said().slice(top.said().lastIndexOf(LEAVE)), /top: \S/);
});

onLinux("colours are for a terminal, unless NO_COLOR is set", async (t) => {
  const { url } = await world(t);
  const coloured = onTerminal(t, url, "partitions");
  t.is(await coloured.exited(), 0);
  t.true(coloured.said().includes("\x1b[1m"), coloured.said());
  const plain = onTerminal(t, url, "partitions", { NO_COLOR: "1" });
  t.is(await plain.exited(), 0);
  t.false(plain.said().includes("\x1b"));
  t.regex(plain.said(), /ana: incident 12/);
});

/** The lines of the last whole frame. */
function lastFrame(said: string): readonly string[] {
  const frame = said.split("\x1b[H").findLast((text) => text.includes("\x1b[J")) ?? "";
  return stripVTControlCharacters(frame.slice(0, frame.indexOf("\x1b[J"))).split(/\r?\n/);
}

onLinux("top shows what is of most use in 14 lines of 60 columns, and cuts no word", async (t) => {
  const { url, pool, utils } = await world(t);
  const small = { size: "rows 14 cols 60" };
  const frameOf = async (says: string) => {
    const top = onTerminal(t, url, "top", small);
    await until("the first frame is there", () => top.said().includes(says) && top.said().includes("\x1b[J"));
    top.type("q");
    await top.exited();
    const lines = lastFrame(top.said());
    t.log(lines.join("\n"));
    t.true(lines.length <= 14 && lines.every((line) => line.length <= 60));
    t.deepEqual(
      lines.filter((line) => /\S…/.test(line)),
      [],
    );
    return lines;
  };
  const quiet = await frameOf("No worker pool is known.");
  t.regex(quiet[1]!, /^POLICY +STATE +STAGED +IN FLIGHT +PACE\/MIN$/);
  t.regex(quiet[5]!, /^POLICY +PARTITION +REASON +UNTIL$/);
  t.is(
    quiet.filter((line) => /^(fetch_endpoint|send_mail) +\S+ +[a-z]+_?[a-z]*( +in .*)?$/.test(line)).length,
    6,
  );
  for (const name of ["a", "b", "c"])
    await pool.query(
      "select dispatch_policy_internal._worker_alive($1, 1, '{fetch_endpoint}', 'host', 7, '1 hour', '0')",
      [`pool-${name}`],
    );
  await utils.pause({ policy: "send_mail" });
  for (const to of ["fay@example.org", "gil@example.org"]) await utils.addJob("send_mail", { to });
  await utils.tick();
  const busy = await frameOf("3 worker pools, 3 alive.");
  t.regex(busy.join("\n"), /^… and \d more$/m);
});
