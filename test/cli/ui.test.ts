// The command `ui`: pages on this machine, until it is told to end.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import test from "ava";
import { MAIN } from "../helpers/command.ts";
import { until } from "../helpers/until.ts";
import { world } from "./world.ts";

/** The status of a request under this name for the host. */
async function statusAt(url: string, host: string): Promise<number | undefined> {
  const request = http.get(url, { headers: { host } });
  const [answer] = (await once(request, "response")) as [http.IncomingMessage];
  answer.resume();
  return answer.statusCode;
}

test("it serves the pages under this machine's names alone, says where, and ends by a signal", async (t) => {
  const { url: database } = await world(t);
  const folder = await mkdtemp(path.join(os.tmpdir(), "opener-"));
  t.teardown(() => rm(folder, { recursive: true }));
  const opened = path.join(folder, "opened");
  for (const name of ["xdg-open", "open"]) {
    await writeFile(path.join(folder, name), `#!/bin/sh\nprintf %s "$1" > "${opened}"\n`);
    await chmod(path.join(folder, name), 0o755);
  }
  const flags = ["--port", "0", "--json", "--read-only", "--by", "ana", "--open", "--environment", "staging"];
  const child = spawn(process.execPath, [MAIN, "ui", ...flags], {
    env: {
      ...process.env,
      ...{ DATABASE_URL: database, NODE_NO_WARNINGS: "1" },
      PATH: `${folder}:${process.env.PATH}`,
    },
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const gone = once(child, "close");
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const { url } = JSON.parse(line.toString());
  t.regex(url, /^http:\/\/127\.0\.0\.1:\d+\/$/);
  await until("a browser was opened", async () => (await readFile(opened, "utf8").catch(() => "")) === url);
  const page = await (await fetch(url)).text();
  t.regex(page, /ana, viewer/);
  t.regex(page, /<title>staging: Overview .*<p class="environment">staging<\/p>/s);
  const sent = await fetch(`${url}act/pause`, {
    method: "POST",
    headers: { "sec-fetch-site": "same-origin" },
  });
  t.is(sent.status, 403);
  t.is(await statusAt(url, "evil.example"), 421, "a name that another site made point here");
  child.kill("SIGTERM");
  t.deepEqual(await gone, [0, null]);
});
