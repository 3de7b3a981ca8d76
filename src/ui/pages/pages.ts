import { audit } from "./audit.ts";
import { group, groups } from "./groups.ts";
import { health } from "./health.ts";
import { job } from "./job.ts";
import { jobs } from "./jobs.ts";
import { limits } from "./limits.ts";
import { overview } from "./overview.ts";
import { partition } from "./partition.ts";
import { partitions } from "./partitions.ts";
import { policies } from "./policies.ts";
import { policy } from "./policy.ts";
import { search } from "./search.ts";
import type { Page } from "./visit.ts";
import { workers } from "./workers.ts";

export type { Found, Page, Rights, Visit } from "./visit.ts";

/** The pages that only look, by their paths. */
export const PAGES: Readonly<Record<string, Page>> = {
  "/": overview,
  "/policies": policies,
  "/policy": policy,
  "/partitions": partitions,
  "/partition": partition,
  "/jobs": jobs,
  "/job": job,
  "/search": search,
  "/groups": groups,
  "/group": group,
  "/limits": limits,
  "/workers": workers,
  "/audit": audit,
  "/health": health,
};
