import { checkPolicy, type OperateContext } from "../../operate/call.ts";
import { spelled } from "../../operate/rows.ts";

/**
 * Rows of a view, with their columns in camelCase.
 *
 * @throws {UnknownPolicyError} for a policy that nobody declared
 */
export async function rowsOf<Row>(
  { engine, withPgClient }: OperateContext,
  view: string,
  policy: string | undefined,
  where: string,
  values: unknown[],
): Promise<readonly Row[]> {
  const rows = await withPgClient(async (client) => {
    await checkPolicy(client, engine, policy);
    return engine.view<object>(client, view, where, values);
  });
  return rows.map((row) => spelled<Row>(row));
}
