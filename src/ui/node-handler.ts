import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";

/**
 * The pages as a request listener of Node's http server, and so for Express and the like. Express strips the path below
 * which it mounts a handler: give `createUi` the same path as `basePath`.
 *
 * A body that the host has parsed into `request.body` already is encoded once more, as a form. If the host has read the body and
 * put it elsewhere, the answer to a form is 500, and says what to do.
 *
 * @example
 * const app = express();
 * app.use("/jobs", toNodeHandler(createUi({ pool, authorize, basePath: "/jobs" })));
 */
export function toNodeHandler(
  ui: (request: Request) => Promise<Response>,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    const asked = await asRequest(request);
    const answer = asked
      ? await ui(asked).catch((error: Error) => new Response(`${error.message}\n`, { status: 500 }))
      : new Response("These pages do not answer such a request\n", { status: 400 });
    response.statusCode = answer.status;
    response.setHeaders(answer.headers);
    if (answer.body)
      await pipeline(Readable.fromWeb(answer.body as ReadableStream), response).catch(() => {});
    else response.end();
  };
}

const HOST = /^[\w.\-:[\]]+$/;

type Parsed = IncomingMessage & { originalUrl?: string; body?: unknown };

/**
 * Null if no browser sends such a request: its method is TRACE, or its host or path is no part of an address. An error here
 * would reject the listener's promise. Nobody awaits that, so Node would end the process.
 */
async function asRequest(request: Parsed): Promise<Request | null> {
  const { method = "GET", headers } = request;
  const given = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (name.startsWith(":")) continue;
    for (const one of [value].flat()) if (one !== undefined) given.append(name, one);
  }
  const hasBody = method !== "GET" && method !== "HEAD";
  try {
    const body = hasBody ? bodyOf(request) : undefined;
    const asked = new Request(addressOf(request), {
      method,
      headers: given,
      ...(hasBody ? { body: body ?? "", duplex: "half" } : {}),
    } as RequestInit);
    if (body === null) await asked.text(); // so that its `bodyUsed` says the same as of a host that has Requests
    return asked;
  } catch {
    return null;
  }
}

/** A path that begins with two slashes would name another host if it was resolved. */
function addressOf({ originalUrl, url = "/", headers: { host = "localhost" } }: Parsed): URL {
  if (!HOST.test(host)) throw new TypeError("a host with other signs could change the path");
  const path = originalUrl ?? url;
  return path.startsWith("/") ? new URL(`http://${host}${path}`) : new URL(path, `http://${host}`);
}

/**
 * Null: the host has read the body, and nobody can tell where it is. Express 4 gives every request an empty body, also if no
 * parser has read it.
 */
function bodyOf(request: Parsed): string | Uint8Array | ReadableStream | null {
  const { body, readableDidRead, readableEnded } = request;
  if (!readableDidRead && !readableEnded) return Readable.toWeb(request) as ReadableStream;
  if (typeof body === "string" || body instanceof Uint8Array) return body;
  if (typeof body !== "object" || body === null) return null;
  return new URLSearchParams(body as Record<string, string>).toString();
}
