import { isIP } from "node:net";

/** The name under which a request has come. */
export function hostOf(request: Request): string {
  return request.headers.get("host") ?? new URL(request.url).host;
}

/**
 * Whether the pages are meant to be reached under this name: it is that of a public origin, or an address. Another site can make
 * its own name lead here, and its scripts then read all that the pages answer. It cannot do that with an address.
 */
export function isOurHost(host: string, publicOrigins: readonly string[]): boolean {
  const names = ["http", "https"].flatMap((scheme) => {
    const url = `${scheme}://${host}`;
    return URL.canParse(url) ? [new URL(url)] : [];
  });
  return names.some(
    ({ hostname, origin }) =>
      hostname === "localhost" ||
      isIP(hostname.replace(/^\[|\]$/g, "")) > 0 ||
      publicOrigins.includes(origin),
  );
}

/**
 * Whether a request comes from the pages themselves. Browsers say so by `Sec-Fetch-Site`. Those that do not send it name the
 * origin, which must be the host's, or one of `publicOrigins` behind a proxy.
 */
export function comesFromOurPages(request: Request, publicOrigins: readonly string[]): boolean {
  const site = request.headers.get("sec-fetch-site");
  if (site !== null) return site === "same-origin";
  const origin = request.headers.get("origin");
  if (origin === null || !URL.canParse(origin)) return false;
  return publicOrigins.includes(origin) || new URL(origin).host === request.headers.get("host");
}
