import { html, type Markup, none } from "./markup.ts";

const [WIDTH, HEIGHT] = [100, 8];

/** How full something is, as a bar. The words beside it say the same, so nobody has to see it. */
export function gauge(used: number, of: number): Markup {
  return of > 0 ? filled("gauge", used / of) : none;
}

/** A number beside those of the other rows, as a bar after it: the greatest is a whole one. */
export function compared(value: number, greatest: number): Markup {
  return filled("gauge compared", greatest > 0 ? value / greatest : 0);
}

function filled(name: string, share: number): Markup {
  const width = Math.min(Math.max(share, 0), 1) * WIDTH;
  return html`<svg class="${name}" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true"><rect width="${width}" height="${HEIGHT}"></rect></svg>`;
}
