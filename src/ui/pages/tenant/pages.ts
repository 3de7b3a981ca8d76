import { job } from "./job.ts";
import { overview } from "./overview.ts";
import { partition } from "./partition.ts";
import type { TenantPage } from "./visit.ts";

/**
 * All that a tenant can ask for, by its path. Anything else is answered as if it was not there. So a page that is made for
 * those who see all is closed to tenants.
 */
export const TENANT_PAGES: ReadonlyMap<string, TenantPage> = new Map([
  ["/", overview],
  ["/partition", partition],
  ["/job", job],
]);
