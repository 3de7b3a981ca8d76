import type { OperateContext } from "../../operate/call.ts";
import type { Exit, PlaceValues } from "../command.ts";
import { lookingAt } from "../input/place.ts";
import { watching } from "./watch.ts";

/** Runs a command that only looks: on a connection that cannot write, once or with `--watch` again and again. */
export function looks(
  values: PlaceValues & { readonly watch: number | undefined; readonly json: boolean },
  print: (context: OperateContext) => Promise<Exit>,
): Promise<Exit> {
  return lookingAt(values, (context) => watching(values, () => print(context)));
}
