// The playground's page: cards and sliders become a setup, the worker runs it, and its frames become lanes and a table.
import { drawLanes, makeLanes, writeName } from "./lanes.ts";
import { BEGIN, type Order, type Said } from "./messages.ts";
import { textOf } from "./policy.ts";
import { PRESETS } from "./presets.ts";
import { DEFAULTS, FIELDS, readSetup, type Setup, shown } from "./setup.ts";
import { FRAMES, type Frame } from "./simulation.ts";

const byId = <E extends HTMLElement>(id: string) => document.getElementById(id) as E;
const form = byId<HTMLFormElement>("setup");
const runButton = byId<HTMLButtonElement>("run");
const stopButton = byId<HTMLButtonElement>("stop");
const status = byId("status");
const progress = byId<HTMLProgressElement>("progress");
const time = byId<HTMLInputElement>("time");
const cards = [...document.querySelectorAll<HTMLButtonElement>("[data-preset]")];

let setup = setupOfAddress();
/** The setup of the run that the page shows, and its frames so far. */
let shownSetup = setup;
let frames: Frame[] = [];
let worker: Worker | undefined;
/** Whether the visitor has chosen a moment. Else the page shows the newest one. */
let isLooking = false;
let isDrawing = false;

for (const card of cards)
  card.addEventListener("click", () => {
    const preset = PRESETS.find(({ id }) => id === card.dataset.preset);
    if (!preset) return;
    take(preset.setup);
    fillForm();
    clear();
    // once the database has been loaded, a card shows its run at once
    if (isLoaded) run();
  });
form.addEventListener("input", () => take(readSetup(Object.fromEntries(new FormData(form)))));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
runButton.addEventListener("click", run);
stopButton.addEventListener("click", () => end("Stopped."));
time.addEventListener("input", () => {
  isLooking = Number(time.value) < frames.length - 1;
  draw();
});
byId("copy").addEventListener("click", copy);
window.addEventListener("hashchange", () => {
  if (addressOf(setup) === location.hash.slice(1)) return;
  take(setupOfAddress());
  fillForm();
  clear();
});

let isLoaded = false;
take(setup);
fillForm();
clear();

/** The settings of a card, or those that differ from the defaults. */
function setupOfAddress(): Setup {
  const hash = location.hash.slice(1);
  const preset = PRESETS.find(({ id }) => id === hash);
  if (preset) return preset.setup;
  const given = Object.fromEntries(new URLSearchParams(hash));
  return Object.keys(given).some((key) => key in DEFAULTS)
    ? readSetup(given)
    : (PRESETS[0]?.setup ?? DEFAULTS);
}

function addressOf(it: Setup): string {
  const preset = presetOf(it);
  if (preset) return preset.id;
  const changed = FIELDS.filter(({ key }) => it[key] !== DEFAULTS[key]);
  return new URLSearchParams(changed.map(({ key }) => [key, String(it[key])])).toString();
}

function presetOf(it: Setup) {
  return PRESETS.find((preset) => FIELDS.every(({ key }) => preset.setup[key] === it[key]));
}

/** Makes this the setup: the words beside the sliders, the pressed card, the address and the policy follow. */
function take(it: Setup): void {
  setup = it;
  const preset = presetOf(it);
  for (const card of cards) card.setAttribute("aria-pressed", String(card.dataset.preset === preset?.id));
  for (const field of FIELDS) {
    const output = form.querySelector(`[data-of="${field.key}"]`);
    const words = shown(field, it[field.key]);
    if (output) output.textContent = words;
    form.querySelector(`input[name="${field.key}"]`)?.setAttribute("aria-valuetext", words);
  }
  history.replaceState(null, "", `#${addressOf(it)}`);
  byId("policy").textContent = textOf(it);
  byId("copied").textContent = "";
}

function fillForm(): void {
  for (const { key } of FIELDS) {
    const field = form.elements.namedItem(key) as HTMLInputElement | HTMLSelectElement;
    field.value = String(setup[key]);
  }
}

function clear(): void {
  end("");
  frames = [];
  shownSetup = setup;
  makeLanes(byId("lanes"), setup);
  byId("axis").textContent = "";
  time.disabled = true;
  byId("tenants").replaceChildren();
  draw();
  if (!isLoaded) status.textContent = status.dataset.first ??= status.textContent ?? "";
}

function run(): void {
  clear();
  isLooking = false;
  runButton.disabled = true;
  stopButton.disabled = false;
  progress.hidden = false;
  progress.removeAttribute("value");
  status.textContent = "Starting …";
  worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  worker.addEventListener("message", ({ data }: MessageEvent<Said>) => hear(data));
  worker.addEventListener("error", ({ message }) =>
    end(`The run failed: ${message || "its files could not be loaded"}.`),
  );
  worker.postMessage({ setup } satisfies Order);
}

function hear(said: Said): void {
  if (said.says === "loading") {
    progress.value = said.loaded / said.total;
    const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
    status.textContent = `Loading PostgreSQL: ${megabytes(said.loaded)} of ${megabytes(said.total)} MB`;
  } else if (said.says === "starting") {
    isLoaded = true;
    progress.removeAttribute("value");
    status.textContent = "Starting PostgreSQL …";
  } else if (said.says === "frame") {
    frames.push(said.frame);
    status.textContent = "Running …";
    progress.value = frames.length / (FRAMES + 1);
    if (!isDrawing) requestAnimationFrame(draw);
    isDrawing = true;
  } else if (said.says === "done") {
    // there the reasons are: at the end most jobs are done
    if (!isLooking) time.value = String(Math.round(FRAMES / 4));
    isLooking = true;
    end(summary(said));
  } else {
    end(`The run failed: ${said.message}`);
  }
}

function summary({ passes, startMs, runMs }: Extract<Said, { says: "done" }>): string {
  const started = frames.at(-1)?.tenants.reduce((sum, one) => sum + one.started, 0) ?? 0;
  const isCancelled = ({ outcome }: { outcome: string }) => outcome === "cancelled";
  const cancelled = frames.flatMap(({ ends }) => ends.filter(isCancelled)).length;
  const how = [`at most ${mostAtOnce()} at once`, cancelled > 0 && `${cancelled} cancelled`].filter(Boolean);
  const seconds = (ms: number) => (ms / 1000).toFixed(1);
  return `${started} starts in ${shownSetup.seconds} s, ${how.join(", ")}, by ${passes} passes. It took ${seconds(runMs)} s, and ${seconds(startMs)} s to start.`;
}

/** How many ran at once at most. At one moment, runs end before others start. */
function mostAtOnce(): number {
  const changes = frames.flatMap(({ starts, ends }) => [
    ...starts.map(({ at }) => ({ at, by: 1 })),
    ...ends.map(({ at }) => ({ at, by: -1 })),
  ]);
  let [running, most] = [0, 0];
  for (const { by } of changes.sort((a, b) => a.at - b.at || a.by - b.by)) {
    running += by;
    most = Math.max(most, running);
  }
  return most;
}

/** Ends the worker, if one runs, and says so. */
function end(message: string): void {
  worker?.terminate();
  worker = undefined;
  runButton.disabled = false;
  stopButton.disabled = true;
  progress.hidden = true;
  status.textContent = message;
  if (frames.length > 0) draw();
}

function draw(): void {
  isDrawing = false;
  const last = frames.length - 1;
  time.disabled = last < 0;
  time.max = String(Math.max(last, 1));
  if (!isLooking) time.value = time.max;
  const place = isLooking ? Number(time.value) : last;
  const frame = frames[place];
  drawLanes(byId("lanes"), frames, shownSetup, place);
  const words = frame ? `${(frame.at / 1000).toFixed(0)} s` : "–";
  byId("at").textContent = words;
  time.setAttribute("aria-valuetext", words);
  byId("axis").textContent = frames.length > 0 ? `${shownSetup.seconds} s` : "";
  if (frame) fillTable(frame);
}

function fillTable(frame: Frame): void {
  const titles = [...document.querySelectorAll("thead th")].map(({ textContent }) => textContent ?? "");
  const rows = frame.tenants.map((one, tenant) => {
    const row = document.createElement("tr");
    const cells: [string, string, string][] = [
      ["th", "", ""],
      ["td", "number", String(one.started)],
      ["td", "number", String(one.running)],
      ["td", "number", String(one.waiting)],
      ["td", "why", inSeconds(one.sentence)],
    ];
    for (const [n, [tag, kind, text]] of cells.entries()) {
      const cell = document.createElement(tag);
      cell.dataset.of = titles[n]; // where the table is too narrow for columns
      if (kind) cell.className = kind;
      cell.textContent = text;
      if (tag === "th") {
        cell.setAttribute("scope", "row");
        writeName(cell, shownSetup, tenant);
      }
      row.append(cell);
    }
    return row;
  });
  byId("tenants").replaceChildren(...rows);
}

/** Times of the run's day, as seconds from its beginning. Sentences have them to the second. */
function inSeconds(sentence: string): string {
  const time = /\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g;
  return sentence.replace(time, (text) => `${((Date.parse(text) - BEGIN) / 1000).toFixed(0)} s`);
}

async function copy(): Promise<void> {
  const text = byId("policy").textContent ?? "";
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = "Copied.";
  } catch {
    const range = document.createRange();
    range.selectNodeContents(byId("policy"));
    getSelection()?.removeAllRanges();
    getSelection()?.addRange(range);
    byId("copied").textContent = "The browser refuses. The text is selected: press Ctrl or Command and C.";
  }
}
