// The past of a job on its page, where its policy keeps a history.
import test from "ava";
import { concurrency, definePolicy } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { startWorker } from "../helpers/worker.ts";
import { HERE } from "./world.ts";

const options = { partitionBy: "k", gates: [concurrency({ max: 1 })] } as const;
const kept = definePolicy("kept", { ...options, history: { keep: "7 days" } });
const forgotten = definePolicy("forgotten", options);

test("a job's page tells what happened to it, in order, and what it waited for", async (t) => {
  const tasks = {
    kept(payload: unknown) {
      if ((payload as { bad?: boolean }).bad) throw new Error("503 from the <server>");
    },
    forgotten() {},
  };
  const { utils, sees, everythingIsReleased, pool } = await startWorker(t, {
    policies: [kept, forgotten],
    tasks,
  });
  const good = await utils.addJob("kept", { k: "a" }, { jobKey: "its" });
  const bad = await utils.addJob("kept", { k: "b", bad: true }, { maxAttempts: 1 });
  const lost = await utils.addJob("forgotten", { k: "a" });
  const coming = await utils.addJob("kept", { k: "c" }, { runAt: new Date(Date.now() + 86_400_000) });
  await sees("job:success", 2);
  await sees("job:error", 1);
  await everythingIsReleased();
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "viewer" }) });
  const ask = (id: string) => ui(new Request(`${HERE}/job?id=${id}`));
  const text = async (id: string) => (await ask(id)).text();

  const page = await text(good.id);
  t.deepEqual(whatHappened(page), ["added", "admitted", "last attempt started", "succeeded"]);
  t.regex(page, /<dt>job key<\/dt><dd>its<\/dd>/);
  t.regex(page, /<caption>How long it waited in staging, by reason<\/caption>.*in_line: others went first/s);
  for (const [, after] of page.matchAll(/<td class="number">(?:–|([^<]*))<\/td>/g))
    t.regex(after ?? "0 ms", /^\d[\d.]* (ms|s|min)/);

  const failed = await text(bad.id);
  t.is(whatHappened(failed).at(-1), "failed");
  t.regex(failed, /503 from the &lt;server&gt;/);
  t.notRegex(await text(coming.id), /<h2>History/, "it has no past yet");
  const gone = await ask(lost.id);
  t.is(gone.status, 404);
  t.regex(await gone.text(), /unless its policy keeps a history/);
});

/** What the first table of the history says, by its rows. */
function whatHappened(page: string): readonly (string | undefined)[] {
  const [, section = ""] = page.split("<caption>What happened to it</caption>");
  const rows = section.split("</tbody>")[0]?.split("<tr>").slice(2) ?? [];
  return rows.map((row) => /<td[^>]*>([^<]*)</.exec(row)?.[1]);
}
