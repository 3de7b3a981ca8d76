import { show } from "../checks/options.ts";
import { checkJsonObject, type JsonObject, type JsonOf } from "../policy/json.ts";
import { type AnyPolicy, definitionHash, policyDefinition, resolveLimits } from "../policy/policy.ts";
import { actOf, aimOf, asOurs, callOrCount, checkPolicy, type OperateContext, told } from "./call.ts";
import { IDLE_STEPS } from "./steps.ts";
import type { Changed, ContextValues, DryRun, PolicyTarget, Reach, Why } from "./targets.ts";

/** The options of `refreshContext`: which partitions, and what their context has from now on. */
export type RefreshContextOptions<C extends JsonOf<C> = JsonObject> = PolicyTarget & {
  /** Only partitions whose context has these values, such as `{ account: "acme" }`. Default: whatever it has. */
  where?: ContextValues | undefined;
  /** The values that change. They take the place of those of the same names in the stored context; the others stay. */
  context: C;
} & Why &
  DryRun;

const PAGE = 1000;

/** Documented at {@link Operate.refreshContext}. */
export async function refreshContext(
  refreshing: OperateContext,
  options: RefreshContextOptions,
): Promise<Changed & Reach> {
  checkJsonObject("refreshContext: context", options.context);
  const policy = await policyOf(refreshing, options.policy);
  if (policy === undefined) return refreshInSql(refreshing, options);
  return options.dryRun ? countPages(refreshing, policy, options) : refreshPages(refreshing, policy, options);
}

/** Undefined: this process does not have it. */
async function policyOf(
  { withPgClient, engine, registry }: OperateContext,
  name: string,
): Promise<AnyPolicy | undefined> {
  await withPgClient((client) => checkPolicy(client, engine, name));
  return registry?.policies.find(({ identifier }) => identifier === name);
}

/** Without the policy's functions. SQL refuses if there are any. */
async function refreshInSql(
  refreshing: OperateContext,
  options: RefreshContextOptions,
): Promise<Changed & Reach> {
  const { where, context, dryRun, ...rest } = options;
  const result = await callOrCount<Changed>(refreshing, "refresh_context", {
    ...rest,
    ...{ context: JSON.stringify(context), where: where && JSON.stringify(where), dry_run: dryRun },
  });
  if (!dryRun) tellOf(refreshing, options, result);
  return result;
}

function tellOf(refreshing: OperateContext, options: RefreshContextOptions, changed: Changed): void {
  const { policy, context, where = null } = options;
  told(refreshing, "dispatchPolicy:refreshContext", {
    ...{ ...aimOf(options), policy, where, context },
    ...actOf(changed, options),
  });
}

async function refreshPages(refreshing: OperateContext, policy: AnyPolicy, options: RefreshContextOptions) {
  const total = { matched: 0, changed: 0 };
  for await (const page of pagesOf(refreshing, options)) {
    const { matched, changed } = await refreshPage(refreshing, policy, options, page);
    total.matched += matched;
    total.changed += changed;
  }
  return total;
}

/** The same without a change: what it would concern. It works out the limits as well, because a function may throw. */
async function countPages(refreshing: OperateContext, policy: AnyPolicy, options: RefreshContextOptions) {
  const total = { matched: 0, changed: 0, partitions: 0, staged: 0, inFlight: 0 };
  const of = { policy: policy.identifier, hash: definitionHash(policyDefinition(policy)) };
  const { withPgClient, engine } = refreshing;
  for await (const page of pagesOf(refreshing, options)) {
    const ids = page.filter(({ fits }) => fits).map(({ id }) => id);
    refreshed(policy, options, page);
    const reach = await asOurs(
      () => withPgClient((client) => engine.refreshReach(client, of, ids)),
      refreshing,
    );
    total.matched += ids.length;
    total.partitions += reach.partitions;
    total.staged += reach.staged;
    total.inFlight += reach.in_flight;
  }
  return total;
}

type Page = Awaited<ReturnType<OperateContext["engine"]["contextsToRefresh"]>>;

/** The partitions of the policy, page by page; at least one page. */
async function* pagesOf(refreshing: OperateContext, options: RefreshContextOptions): AsyncGenerator<Page> {
  for (let after: string | null = null; ; ) {
    const page: Page = await pageOf(refreshing, options, after);
    yield page;
    const last = page.at(-1);
    if (last === undefined) return; // a page with large contexts is short
    after = last.id;
  }
}

function pageOf(
  { withPgClient, engine }: OperateContext,
  { policy, partition, where }: RefreshContextOptions,
  after: string | null,
): Promise<Page> {
  const asked = { policy, partition: partition ?? null, where: where ? JSON.stringify(where) : null, after };
  return withPgClient((client) => engine.contextsToRefresh(client, asked, PAGE));
}

/** Partitions that fit, with their new contexts and limits. */
function refreshed(policy: AnyPolicy, { context: values }: RefreshContextOptions, page: Page) {
  return page
    .filter(({ fits }) => fits)
    .map(({ id, key, context, arrival_id: arrivalId }) => {
      const merged = { ...context, ...values };
      return { id, key, context: merged, arrivalId, ...resolveLimits(policy, merged) };
    });
}

/** Refreshes the partitions of a page. Those that got another context meanwhile are read again. */
async function refreshPage(
  refreshing: OperateContext,
  policy: AnyPolicy,
  options: RefreshContextOptions,
  page: Page,
): Promise<Changed> {
  const { withPgClient, engine } = refreshing;
  const { reason = null, by = null } = options;
  const hash = definitionHash(policyDefinition(policy));
  const total = { matched: 0, changed: 0 };
  let partitions = refreshed(policy, options, page);
  for (let step = 0; partitions.length > 0; step++) {
    if (step === IDLE_STEPS)
      throw new Error(
        `refreshContext: the context of ${show(partitions[0]?.key)} changes again and again; try again later`,
      );
    const given = partitions;
    const { changed, stale } = await asOurs(
      () =>
        withPgClient((client) =>
          engine.refreshContexts(client, { policy: policy.identifier, hash, reason, by }, given),
        ),
      refreshing,
    );
    const matched = given.length - stale.length;
    tellOf(refreshing, options, { matched, changed });
    total.matched += matched;
    total.changed += changed;
    const again = await Promise.all(
      stale.map((partition) => pageOf(refreshing, { ...options, partition }, null)),
    );
    partitions = refreshed(policy, options, again.flat());
  }
  return total;
}
