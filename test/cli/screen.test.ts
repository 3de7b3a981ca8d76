// On a terminal: colours, and the live screen. util-linux's `script` gives the command one, so this is for Linux.
import { spawn } from "node:child_process";
import test, { type ExecutionContext } from "ava";
import { MAIN } from "../helpers/command.ts";
import { until } from "../helpers/until.ts";
import { world } from "./world.ts";

const onLinux = process.platform === "linux" ? test.serial : test.serial.skip;

const ENTER = "\x1b[?1049h";
const LEAVE = "\x1b[?25h\x1b[?1049l";

const EXITED = /exited with (\d+)\r\n$/;

/**
 * A command with a terminal of 24 lines and 100 columns. `script` may end before it has read all that a command said
 * at last, so the shell outlives the command, and says how it exited.
 */
function onTerminal(t: ExecutionContext, url: string, line: string, env: NodeJS.ProcessEnv = {}) {
  // Node takes a terminal that has CI in its environment for one without colours
  const { NO_COLOR: _, FORCE_COLOR: __, CI: ___, ...inherited } = process.env;
  const command = `stty rows 24 cols 100; ${process.execPath} ${MAIN} ${line}; echo exited with $?; read line`;
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
    t.regex(top.said(), /fetch_endpoint +on, no worker +15 +3 +–/);
    await utils.admit({ policy: "fetch_endpoint", partition: "ep3", count: 2 });
    await until("a later frame has a pace", () =>
      /fetch_endpoint +on, no worker +13 +5 +[1-9]/.test(top.said()),
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
