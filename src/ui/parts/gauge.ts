import { html, type Markup, none } from "./markup.ts";

const [WIDTH, HEIGHT] = [100, 8];

/** How full something is, as a bar. The words beside it say the same, so nobody has to see it. */
export function gauge(used: number, of: number): Markup {
  if (!(of > 0)) return none;
  const width = Math.min(Math.max(used / of, 0), 1) * WIDTH;
  return html`<svg class="gauge" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true"><rect width="${width}" height="${HEIGHT}"></rect></svg>`;
}
