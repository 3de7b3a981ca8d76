import { show } from "../checks/options.ts";
import { checkJsonObject, type JsonObject } from "../policy/json.ts";
import { type AnyPolicy, definitionHash, policyDefinition, resolveLimits } from "../policy/policy.ts";
import type { Registry } from "../policy/registry.ts";
import { asOurs, call, checkPolicy, type OperateContext } from "./call.ts";
import { IDLE_STEPS } from "./steps.ts";
import { type Changed, type ContextValues, checkVerb, type PolicyTarget, type Why } from "./targets.ts";

/** The options of `refreshContext`: which partitions, and what their context has from now on. */
export type RefreshContextOptions = PolicyTarget & {
  /** Only partitions whose context has these values, such as `{ account: "acme" }`. Default: whatever it has. */
  where?: ContextValues | undefined;
  /** The values that change. They take the place of those of the same names in the stored context; the others stay. */
  context: JsonObject;
} & Why;

type Refreshing = OperateContext & { readonly registry: Registry };

const PAGE = 1000;

/** Documented at {@link Operate.refreshContext}. */
export async function refreshContext(
  refreshing: Refreshing,
  options: RefreshContextOptions,
): Promise<Changed> {
  checkVerb("refreshContext", options, {
    needs: ["policy", "context"],
    takes: ["partition", "where", "reason", "by"],
  });
  checkJsonObject("refreshContext: context", options.context);
  const policy = await policyOf(refreshing, options.policy);
  if (policy === undefined) return refreshInSql(refreshing, options);
  const total = { matched: 0, changed: 0 };
  let after: string | null = null;
  for (;;) {
    const page = await pageOf(refreshing, options, after);
    const { matched, changed } = await refreshPage(refreshing, policy, options, page);
    total.matched += matched;
    total.changed += changed;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return total;
    after = last.id;
  }
}

/** Undefined: this process does not have it. */
async function policyOf(
  { withPgClient, engine, registry }: Refreshing,
  name: string,
): Promise<AnyPolicy | undefined> {
  await withPgClient((client) => checkPolicy(client, engine, name));
  return registry.policies.find(({ identifier }) => identifier === name);
}

/** Without the policy's functions. SQL refuses if there are any. */
function refreshInSql(
  refreshing: Refreshing,
  { where, context, ...rest }: RefreshContextOptions,
): Promise<Changed> {
  const args = { ...rest, context: JSON.stringify(context), where: where && JSON.stringify(where) };
  return call<Changed>(refreshing, "refresh_context", args);
}

type Page = Awaited<ReturnType<Refreshing["engine"]["contextsToRefresh"]>>;

function pageOf(
  { withPgClient, engine }: Refreshing,
  { policy, partition, where }: RefreshContextOptions,
  after: string | null,
): Promise<Page> {
  const asked = { policy, partition: partition ?? null, where: where ? JSON.stringify(where) : null, after };
  return withPgClient((client) => engine.contextsToRefresh(client, asked, PAGE));
}

/** Refreshes the partitions of a page. Those that got another context meanwhile are read again. */
async function refreshPage(
  refreshing: Refreshing,
  policy: AnyPolicy,
  options: RefreshContextOptions,
  page: Page,
): Promise<Changed> {
  const { withPgClient, engine } = refreshing;
  const { reason = null, by = null } = options;
  const hash = definitionHash(policyDefinition(policy));
  const total = { matched: 0, changed: 0 };
  let fitting = page.filter(({ fits }) => fits);
  for (let step = 0; fitting.length > 0; step++) {
    if (step === IDLE_STEPS)
      throw new Error(
        `refreshContext: the context of ${show(fitting[0]?.key)} changes again and again; try again later`,
      );
    const partitions = fitting.map(({ key, context, arrival_id: arrivalId }) => {
      const merged = { ...context, ...options.context };
      return { key, context: merged, arrivalId, ...resolveLimits(policy, merged) };
    });
    const { changed, stale } = await asOurs(
      () =>
        withPgClient((client) =>
          engine.refreshContexts(client, { policy: policy.identifier, hash, reason, by }, partitions),
        ),
      refreshing,
    );
    total.matched += fitting.length - stale.length;
    total.changed += changed;
    const again = await Promise.all(
      stale.map((partition) => pageOf(refreshing, { ...options, partition }, null)),
    );
    fitting = again.flat().filter(({ fits }) => fits);
  }
  return total;
}
