import { DispatchPolicyError } from "../errors.ts";

/** As in package.json's `engines`, which npm only warns about. */
export const OLDEST_NODE = "22.18.0";

/**
 * On an older Node a worker would start, and then fail at the first call that this Node lacks.
 *
 * @throws {DispatchPolicyError} with code `unsupported_node`
 */
export function checkNode(version: string = process.versions.node): void {
  const wanted = parts(OLDEST_NODE);
  const found = parts(version);
  const first = wanted.findIndex((part, i) => part !== found[i]);
  if (first === -1 || (found[first] as number) > (wanted[first] as number)) return;
  throw new DispatchPolicyError(
    "unsupported_node",
    `Node ${version} runs this process, expected ${OLDEST_NODE} or later: upgrade Node to use ` +
      "graphile-worker-dispatch-policy",
  );
}

function parts(version: string): readonly number[] {
  return version.split(/[.-]/).slice(0, 3).map(Number);
}
