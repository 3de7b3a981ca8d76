import { keyInWords } from "../operate/gate-words.ts";
import { type AuditRow, parameter, rowsOf } from "../operate/view-rows.ts";
import { defineCommand } from "./command.ts";
import { LOOK, page } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList } from "./output/say.ts";
import { table } from "./output/table.ts";
import { atLocalTime, grouped } from "./output/words.ts";

const MOST = 50;

const [POLICY, PARTITION, BY, SINCE] = [
  parameter(1, "text"),
  parameter(2, "text"),
  parameter(3, "text"),
  parameter(4, "time"),
];
const WHERE = `where (${POLICY} is null or policy = ${POLICY}) and (${PARTITION} is null or partition = ${PARTITION})
  and (${BY} is null or by = ${BY}) and (${SINCE} is null or at >= ${SINCE})
  order by id desc limit ${parameter(5, "int")}`;

/** What operators did, the newest first. */
export const command = defineCommand({
  options: {
    policy: { kind: "text", meaning: "only calls for this policy", default: "all" },
    partition: { kind: "text", meaning: "only calls for this partition", default: "all" },
    by: { kind: "text", meaning: "only calls of this operator", default: "all" },
    since: { kind: "past", meaning: "only calls since: a time, or a duration ago", default: "all" },
    ...page(MOST),
    ...LOOK,
  },
  examples: [['--since "2 hours"', "what has happened tonight"]],
  about: "The newest stand first. --json has the details of each call.",
  async run(values) {
    const { policy, partition = null, by = null, since = null, limit = MOST } = values;
    return looks(values, async (context) => {
      const asked = [policy ?? null, partition, by, since, limit];
      const found = await rowsOf<AuditRow>(context, "audit", WHERE, asked, policy);
      return answerList(values, found, { table: auditTable, none: "No call matches." });
    });
  },
});

function auditTable(rows: readonly AuditRow[]): string {
  return table(
    [
      { title: "AT", value: ({ at }) => atLocalTime(at) },
      { title: "VERB", value: ({ verb }) => verb },
      { title: "FOR", value: targetOf, least: 12 },
      { title: "CHANGED", isNumber: true, value: ({ changed }) => grouped(changed) },
      { title: "BY", value: ({ by }) => by, least: 6 },
      { title: "REASON", value: ({ reason }) => reason ?? "", least: 8 },
    ],
    rows,
  );
}

function targetOf({ policy, partition, gate, scopeKey }: AuditRow): string {
  const parts = [policy, partition, gate, scopeKey];
  return parts
    .filter((part) => part !== null)
    .map(keyInWords)
    .join("/");
}
