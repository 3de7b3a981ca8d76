// The comparison with other job queues at its smallest: that each of them runs. Nothing about pace. Only where they are
// installed: npm run bench -- --peers does that.
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { areInstalled } from "../../bench/peers/install.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const TAKE_PART = {
  cap: ["plain", "ours", "pg-boss", "pg-boss tuned", "pg-boss local", "bullmq"],
  rate: ["ours", "ours smooth", "bullmq"],
  kills: ["plain", "ours", "pg-boss", "pg-boss tuned", "bullmq"],
};

(areInstalled() ? test : test.skip)(
  "the systems that can hold a limit are measured, the others are named",
  async (t) => {
    t.timeout(540_000);
    const folder = mkdtempSync(path.join(os.tmpdir(), "bench-"));
    t.teardown(() => rmSync(folder, { recursive: true }));
    const file = path.join(folder, "figures.json");
    const args = [
      "bench/main.ts",
      "--peers",
      "--sizes",
      "smallest",
      "--only",
      "cap,rate,kills",
      "--json",
      file,
    ];

    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: ROOT, timeout: 480_000 });

    const { peers } = JSON.parse(readFileSync(file, "utf8")).figures;
    for (const [name, systems] of Object.entries(TAKE_PART)) {
      t.deepEqual(Object.keys(peers[name].systems), systems);
      t.regex(stdout, new RegExp(`^${name} `, "m"));
    }
    for (const { figures } of Object.values<{ figures: { ended: number } }>(peers.cap.systems))
      t.true(figures.ended > 0);
    t.is(peers.cap.systems.ours.figures.startsAbove, 0);
    t.is(peers.kills.systems.ours.figures.startsAbove, 0);
    t.deepEqual(Object.keys(peers.rate.leftOut), ["plain", "pg-boss", "pg-boss tuned", "pg-boss local"]);
  },
);
