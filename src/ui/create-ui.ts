import { arrayOf, checkOptions, optional, type Rule, text } from "../checks/options.ts";
import type { Pool } from "../db/stream-pool.ts";
import { ArgumentError } from "../errors.ts";
import type { ContextValues } from "../operate/targets.ts";
import { schemaOf } from "../settings.ts";
import { makeApp } from "./app.ts";
import { makeDatabase } from "./database.ts";
import { placeOf } from "./place.ts";
import { aTraceUrl, type TraceUrl } from "./trace-url.ts";

/** Who looks at the pages. */
export type Viewer = Staff | Tenant;

/** Somebody who sees all. */
export interface Staff {
  /** The name in the audit. */
  name: string;
  /** A viewer changes nothing. */
  role: "viewer" | "operator";
  /** They have none: whoever is to see some partitions alone is a tenant. */
  partitions?: undefined;
  /** As `partitions`. */
  where?: undefined;
}

/**
 * Somebody who sees their own partitions, learns nothing about others, and changes nothing. At least one of `partitions` and
 * `where` says which these are.
 */
export interface Tenant {
  /** Shown to themselves. */
  name: string;
  role: "tenant";
  /** The keys of their partitions, by policy, such as `{ send_mail: ["acme"] }`. Of all others they see nothing. */
  partitions?: Readonly<Record<string, readonly string[]>> | undefined;
  /**
   * Also the partitions whose context has these values, by policy, such as `{ fetch_endpoint: { account: "acme" } }`. The
   * context of a partition is that of its last job, and they see all jobs of the partition. So name only values that its key
   * decides.
   */
  where?: Readonly<Record<string, ContextValues>> | undefined;
}

/** What {@link createUi} takes beside the database. */
export interface UiSettings {
  /**
   * Says who sends a request. `null`: nobody who may see the pages, and the answer is 401. A `Response`, say a redirect to
   * your sign-in, is sent as it is.
   */
  authorize: (request: Request) => Viewer | Response | null | Promise<Viewer | Response | null>;
  /**
   * The path below which the pages are, such as `"/admin/jobs"`.
   * @default "/"
   */
  basePath?: string | undefined;
  /**
   * The name of the environment, such as `"production"`. It stands on each page before all else, and before the page's name in
   * the browser's tab. So nobody takes the pages of staging for those of production. All who see the pages see it, also tenants.
   * @default none
   */
  environment?: string | undefined;
  /**
   * Origins at which the pages are reached, such as `"https://admin.example.org"`. A request under another name for the host is
   * refused, because another site can make its own name lead here. `localhost` and IP addresses are not. Forms may come from
   * these origins, also if a proxy gives requests another `Host`: if that is a name, add it as well.
   * @default any; a warning says so once
   */
  publicOrigins?: readonly string[] | undefined;
  /**
   * Whether payloads of staged jobs are shown, without fields whose names say that they are secret.
   * @default false
   */
  showPayloads?: boolean | undefined;
  /**
   * The address at which your tracing tool shows a trace, such as
   * `(traceId) => "https://traces.example.org/trace/" + traceId`. Of jobs that are [traced](production.md#traces) the page has it as a link.
   */
  traceUrl?: TraceUrl | undefined;
  /**
   * This package's PostgreSQL schema.
   * @default that of the preset in `preset`, else `DISPATCH_POLICY_SCHEMA` in the environment, else `"dispatch_policy"`
   */
  schema?: string | undefined;
}

/** The options of {@link createUi}. Exactly one of `pool` and `preset` says which database the pages are of. */
export type UiOptions = UiSettings &
  (
    | {
        /** The connections that the pages use: a pool of pg. You close it. */
        pool: Pool;
        /** Not beside `pool`. In place of it, give the preset of your workers, whose database it then is. */
        preset?: undefined;
      }
    | {
        /**
         * The preset of your workers, which has `dispatchPolicyPreset`. The pages connect to its `worker.connectionString`, else
         * as Graphile Worker does: to `DATABASE_URL`, or by `PGDATABASE` and the like. They make at most 4 connections, which
         * `release()` closes. They read the policies from the database, so those that only another process has are shown too.
         */
        preset: GraphileConfig.Preset;
        /** Not beside `preset`. */
        pool?: undefined;
      }
  );

/** Answers the requests of the admin pages: for Hono, Next.js and whatever else takes a `Request`. */
export interface Ui {
  (request: Request): Promise<Response>;
  /** Closes the connections that were made for a `preset`, once the pages that use them are made. A `pool` stays open. */
  release(): Promise<void>;
  /** The same as `release()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

const aPath: Rule = {
  expects: 'a path that begins with "/", such as "/admin/jobs"',
  accepts: (value) => typeof value === "string" && /^\/[\w\-./~%]*$/.test(value),
};
/** A longer one would leave no room for the pages' own names. */
const MOST_OF_A_NAME = 40;
const anEnvironment: Rule = {
  expects: `a name of at most ${MOST_OF_A_NAME} characters, such as "production"`,
  accepts: (value) => text(MOST_OF_A_NAME).accepts(value) && (value as string).trim() !== "",
};
const anOrigin: Rule = {
  expects: 'an origin, such as "https://admin.example.org"',
  accepts: (value) => typeof value === "string" && URL.canParse(value) && new URL(value).origin === value,
};

/**
 * Pages that show why jobs wait, and that change what stops them. They need no JavaScript.
 *
 * A request may change something only if `authorize` calls the sender an operator, and if it comes from the pages
 * themselves. A tenant sees only the partitions that `authorize` names. What a request did is in the audit, under the name that `authorize` gave. To look, the pages use transactions that
 * cannot write.
 *
 * @throws {ArgumentError} if an option is unknown or of another form, if `authorize` is missing, or unless exactly one of
 * `pool` and `preset` is given
 * @example
 * const ui = createUi({ pool, basePath: "/jobs", authorize: () => ({ name: "ana", role: "operator" }) });
 * http.createServer(toNodeHandler(ui)).listen(3000, "127.0.0.1");
 */
export function createUi(options: UiOptions): Ui {
  checkOptions("createUi", options, [
    ...["pool", "preset", "authorize", "basePath", "environment"],
    ...["publicOrigins", "showPayloads", "traceUrl", "schema"],
  ]);
  const place = placeOf(options);
  if (typeof options.authorize !== "function")
    throw new ArgumentError(
      "createUi: authorize is missing, expected a function that says who sends a request: whoever reaches the pages could " +
        "stop jobs. For yourself alone, run the command `ui`",
    );
  optional("createUi: basePath", options.basePath, aPath);
  optional("createUi: environment", options.environment, anEnvironment);
  optional("createUi: publicOrigins", options.publicOrigins, arrayOf(anOrigin, "origins"));
  optional("createUi: traceUrl", options.traceUrl, aTraceUrl);
  const { authorize, environment, traceUrl } = options;
  const { basePath = "/", publicOrigins = [], showPayloads = false } = options;
  const schema = schemaOf(options.schema ?? place.schema);
  const { pool, release } = place.open();
  const app = makeApp({
    ...{ database: makeDatabase(pool, schema), authorize, environment },
    ...{ publicOrigins, showPayloads, traceUrl },
    base: basePath.replace(/\/+$/, ""),
  });
  const answering = new Set<Promise<Response>>();
  const ui = async (request: Request) => {
    const answer = Promise.resolve(app.fetch(request));
    answering.add(answer);
    return answer.finally(() => answering.delete(answer));
  };
  // a page takes several connections one after the other: it would be cut off between two of them
  const releaseWhenIdle = async () => {
    await Promise.allSettled(answering);
    await release();
  };
  return Object.assign(ui, { release: releaseWhenIdle, [Symbol.asyncDispose]: releaseWhenIdle });
}
