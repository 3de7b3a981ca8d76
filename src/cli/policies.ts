import { numbersOf, OVER } from "../operate/gate-words.ts";
import type { UndeclaredPolicy } from "../operate/status.ts";
import { parameter, rowsOf } from "../operate/view-rows.ts";
import type { PolicyDefinition } from "../policy/definition.ts";
import { defineCommand } from "./command.ts";
import { LOOK, ONLY_POLICY } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList } from "./output/say.ts";
import { visible } from "./output/table.ts";
import { atTime, grouped, inWords, some } from "./output/words.ts";
import { tellOfUndeclared } from "./status.ts";

/** A row of the view `policies`. */
interface Row {
  readonly policy: string;
  readonly version: number;
  readonly definition: PolicyDefinition;
  readonly enabled: boolean;
  readonly paused: boolean;
  readonly pausedUntil: Date | null;
  readonly pausedBy: string | null;
  readonly pauseReason: string | null;
  readonly partitions: number;
  readonly inFlight: number;
  readonly staged: number;
  readonly oldestDueAgeSeconds: number | null;
  readonly oldestDueId: string | null;
  readonly sharedBy: readonly string[] | null;
}

const ASKED = parameter(1, "text");
const WHERE = `where ${ASKED} is null or policy = ${ASKED} order by policy`;

/** Each policy with its gates. */
export const command = defineCommand({
  options: { ...ONLY_POLICY, ...LOOK },
  examples: [["--policy fetch_endpoint --json", "its whole definition"]],
  async run(values) {
    const { policy } = values;
    return looks(values, async (context) => {
      const undeclared = await rowsOf<UndeclaredPolicy>(context, "undeclared_policies", WHERE, [
        policy ?? null,
      ]);
      const known = undeclared.length > 0 ? undefined : policy;
      const found = await rowsOf<Row>(context, "policies", WHERE, [policy ?? null], known);
      undeclared.forEach(tellOfUndeclared);
      return answerList(values, found, {
        table: () => found.map(inLines).join("\n\n"),
        none: "No policy was declared.",
      });
    });
  },
});

function inLines(row: Row): string {
  const { policy, version, enabled, definition, partitions, staged, inFlight, sharedBy } = row;
  return [
    `${policy}  version ${version}, ${enabled ? "on" : "off"}`,
    ...(row.paused ? [`  paused${pauseOf(row)}`] : []),
    sharedBy
      ? `  a limit shared by ${sharedBy.join(", ") || "no policy"}`
      : `  ${some(staged, "staged job")}, ${grouped(inFlight)} in flight, ${some(partitions, "partition")}`,
    ...(row.oldestDueAgeSeconds === null
      ? []
      : [
          `  job ${row.oldestDueId} has been due for longest, for ${inWords(row.oldestDueAgeSeconds * 1000)}`,
        ]),
    ...(definition.gates.length === 0 ? ["  without gates"] : []),
    ...definition.gates.map(
      ({ name, kind, scope, values, constants }) =>
        `  gate ${name}: ${kind} over ${OVER[scope]}; ${numbersOf(values, (seconds) => inWords(seconds * 1000))}${constants.shadow ? "; shadow, holds nothing back" : ""}`,
    ),
  ]
    .map(visible)
    .join("\n");
}

function pauseOf({ pausedBy, pauseReason, pausedUntil }: Row): string {
  const by = pausedBy === null ? "" : ` by ${pausedBy}`;
  const why = pauseReason === null ? "" : ` (${pauseReason})`;
  const until = pausedUntil === null ? " until resume" : ` until ${atTime(pausedUntil)}`;
  return `${by}${why}${until}`;
}
