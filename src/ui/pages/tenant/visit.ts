import type { OperateContext } from "../../../operate/call.ts";
import type { Found } from "../visit.ts";
import type { Own } from "./own.ts";

/** One request of a tenant. It has no way to change anything. */
export interface TenantVisit {
  readonly looking: OperateContext;
  readonly base: string;
  readonly own: Own;
  readonly query: URLSearchParams;
}

/**
 * Makes a page for a tenant. It shows what its own code names, field by field: a part of the other pages would show what is
 * added there later as well.
 */
export type TenantPage = (visit: TenantVisit) => Promise<Found>;
