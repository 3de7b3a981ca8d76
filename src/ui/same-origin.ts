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
