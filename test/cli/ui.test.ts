// The command `ui`: pages on this machine, until it is told to end.
import { spawn } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import test from "ava";
import { MAIN } from "../helpers/command.ts";
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
  const child = spawn(process.execPath, [MAIN, "ui", "--port", "0", "--json", "--read-only", "--by", "ana"], {
    env: { ...process.env, DATABASE_URL: database, NODE_NO_WARNINGS: "1" },
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const gone = once(child, "close");
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const { url } = JSON.parse(line.toString());
  t.regex(url, /^http:\/\/127\.0\.0\.1:\d+\/$/);
  const page = await (await fetch(url)).text();
  t.regex(page, /ana, viewer/);
  const sent = await fetch(`${url}act/pause`, {
    method: "POST",
    headers: { "sec-fetch-site": "same-origin" },
  });
  t.is(sent.status, 403);
  t.is(await statusAt(url, "evil.example"), 401, "a name that another site made point here");
  child.kill("SIGTERM");
  t.deepEqual(await gone, [0, null]);
});
