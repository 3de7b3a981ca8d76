// The relative links of a Markdown page.

/** The targets of links and images, without those that name a host. What stands in code is none. */
export function linksOf(page: string): string[] {
  const prose = page.replace(/^\s*```.*?^\s*```/gms, "").replace(/`[^`\n]*`/g, "code");
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = ""]) => target)
    .filter((target) => !/^[a-z]+:/i.test(target));
}
