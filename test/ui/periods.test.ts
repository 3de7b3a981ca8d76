// Charts of hours and days: by a link, from the same minutes.
import test from "ava";
import type pg from "pg";
import { QUIET_MINUTE } from "../helpers/minutes.ts";
import { table } from "../helpers/table.ts";
import { cellsOf, world } from "./world.ts";

/** Seven days of a policy: a job that came in each tenth minute, and was admitted after a second. */
async function addWeek(pool: pg.Pool): Promise<void> {
  const { id: policy_id } = await table(pool, "policies").one({ name: "send_mail" });
  await table(pool, "minutes").add(
    {
      ...{ ...QUIET_MINUTE, policy_id, passes: 1, pass_seconds: 0.1, last_pass_at: () => "now()" },
      minute: () => "date_trunc('minute', now()) - n * interval '10 minutes'",
      ...{ staged: 2, admitted: 1, denied: { throttle_empty: 3 }, succeeded: 1 },
      ...{ waits: () => "jsonb_build_object(dispatch_policy_internal._bucket(1), 1)", wait_seconds: 1 },
    },
    1005,
  );
}

for (const [period, words, step] of [
  ["6h", "6 hours", 5],
  ["24h", "24 hours", 20],
  ["7d", "7 days", 180],
] as const)
  test(`a policy's page shows the last ${words}, as the minutes say`, async (t) => {
    const { text, pool } = await world(t);
    await addWeek(pool);
    const page = await text(`/policy?policy=send_mail&period=${period}`);
    t.true(page.includes(`<h2>The last ${words}</h2>`));
    t.regex(page, new RegExp(`href="/policy\\?policy=send_mail&amp;period=${period}" aria-current="true"`));
    const { rows } = await pool.query(
      `select date_bin($1::interval, minute, '2000-01-01Z') as at, sum(staged)::int as staged, sum(admitted)::int as admitted,
         sum((denied ->> 'throttle_empty')::int)::int as denied
       from dispatch_policy.minutes where policy = 'send_mail' and minute >= date_bin($1::interval, now() - $2::interval + $1::interval, '2000-01-01Z')
       group by 1 order by 1 desc`,
      [`${step} minutes`, words],
    );
    const cells = cellsOf(page, `The last ${words}`);
    t.true(rows.length > 30);
    t.deepEqual(
      cells.map(([at, came, admitted, denials]) => [at, came, admitted, denials]),
      rows.map(({ at, staged, admitted, denied }) => [
        at.toISOString().slice(0, 19).replace("T", " "),
        ...[staged, admitted, denied].map(String),
      ]),
    );
    const most = Math.max(...rows.map(({ staged }) => staged));
    t.regex(page, new RegExp(`aria-label="Came: at most ${most} in `));
    for (const [, , , , , , wait] of cells) t.regex(wait!, /^(?:0\.9\d?|1|2\.4) s$/);
  });

test("the overview links to the same periods, and one that is not known is the last hour", async (t) => {
  const { text, pool } = await world(t);
  await addWeek(pool);
  t.regex(
    await text("/?period=7d"),
    /<h2>The last 7 days<\/h2>.*href="\/\?period=6h">6 hours<.*Denials in the last 7 days/s,
  );
  for (const query of ["", "?period=", "?period=9y", "?period=constructor"])
    t.regex(await text(`/${query}`), /<h2>The last hour<\/h2>/, query);
});
