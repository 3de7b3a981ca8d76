// The chart: a lane for each tenant, with its starts over time, the jobs that waited, and what went wrong.
import { policyNameOf } from "./policy.ts";
import { type Setup, tenantsOf } from "./setup.ts";
import { FRAMES, type Frame } from "./simulation.ts";

const SVG = "http://www.w3.org/2000/svg";
/** A frame's width, and a lane's height, in units of the drawing. It is stretched, so it has no text. */
const STEP = 10;
const WIDTH = FRAMES * STEP;
const HEIGHT = 40;
/** The strip at the bottom, for holds and for runs that went wrong. */
const STRIP = 6;

export function makeLanes(list: HTMLElement, setup: Setup): void {
  const lanes = tenantsOf(setup).map((name, tenant) => {
    const lane = document.createElement("li");
    const label = document.createElement("span");
    label.className = "name";
    writeName(label, setup, tenant);
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", `${name}: no run yet`);
    const count = document.createElement("span");
    count.className = "count";
    lane.append(label, drawing, count);
    return lane;
  });
  list.replaceChildren(...lanes);
}

/** The tenant's name, and that of its policy if there are two. */
export function writeName(element: HTMLElement, setup: Setup, tenant: number): void {
  element.textContent = tenantsOf(setup)[tenant] ?? "";
  if (setup.policies === 1) return;
  const policy = document.createElement("small");
  policy.textContent = policyNameOf(setup, tenant);
  element.append(" ", policy);
}

/** Draws all frames. The lanes share their scales, so that their heights can be compared. */
export function drawLanes(list: HTMLElement, frames: readonly Frame[], setup: Setup, place: number): void {
  const startsIn = frames.map(({ starts }) => countsOf(starts, setup.tenants));
  const most = Math.max(1, ...startsIn.flat());
  const longest = Math.max(1, ...frames.flatMap(({ tenants }) => tenants.map(({ waiting }) => waiting)));
  for (const [tenant, lane] of [...list.children].entries()) {
    const drawing = lane.querySelector("svg") as SVGSVGElement;
    const standings = frames.map(({ tenants }) => tenants[tenant]);
    const parts = [path("waiting", waitingPath(standings.map((one) => (one?.waiting ?? 0) / longest)))];
    for (const [n, one] of standings.entries()) {
      const starts = startsIn[n]?.[tenant] ?? 0;
      const high = (starts / most) * (HEIGHT - STRIP);
      if (starts > 0) parts.push(bar("starts", n - 1, HEIGHT - STRIP - high, high));
      if (one?.reason === "held") parts.push(bar("held", n - 0.5, HEIGHT - STRIP + 1, STRIP - 1, 1));
      const bad = frames[n]?.ends.some((end) => end.tenant === tenant && end.outcome !== "succeeded");
      if (bad) parts.push(bar("bad", n - 1, HEIGHT - STRIP - 2, STRIP + 2, 0.35));
    }
    if (frames.length > 0) parts.push(bar("cursor", place - 0.1, 0, HEIGHT, 0.15));
    drawing.replaceChildren(...parts);
    const { started = 0, waiting = 0 } = standings.at(-1) ?? {};
    const name = tenantsOf(setup)[tenant];
    const words = `${name}: ${started} starts, ${waiting} jobs wait at the end`;
    drawing.setAttribute("aria-label", frames.length > 0 ? words : `${name}: no run yet`);
    (lane.querySelector(".count") as HTMLElement).textContent = frames.length > 0 ? String(started) : "";
  }
}

function countsOf(events: readonly { readonly tenant: number }[], tenants: number): number[] {
  const counts = new Array<number>(tenants).fill(0);
  for (const { tenant } of events) counts[tenant] = (counts[tenant] as number) + 1;
  return counts;
}

/** The height at each frame, as a surface. */
function waitingPath(shares: readonly number[]): string {
  const ground = HEIGHT - STRIP;
  const points = shares.map((share, n) => `L${n * STEP} ${(ground - share * ground).toFixed(1)}`);
  return `M0 ${ground}${points.join("")}L${Math.max(0, shares.length - 1) * STEP} ${ground}Z`;
}

function path(kind: string, d: string): SVGElement {
  const it = document.createElementNS(SVG, "path");
  it.setAttribute("class", kind);
  it.setAttribute("d", d);
  return it;
}

function bar(kind: string, place: number, y: number, height: number, width = 0.8): SVGElement {
  const it = document.createElementNS(SVG, "rect");
  it.setAttribute("class", kind);
  it.setAttribute("x", String(Math.max(0, place * STEP)));
  it.setAttribute("y", y.toFixed(1));
  it.setAttribute("width", String(width * STEP));
  it.setAttribute("height", height.toFixed(1));
  return it;
}
