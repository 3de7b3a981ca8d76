// docs/api.md: what each entry of the package exports. What can be called has its meaning, signature, errors and an example.
// Of types it has the names: an editor shows their docstrings where they are used.
import { ELSEWHERE, ITEMS, type Item, OBJECTS, SECTIONS } from "./items.ts";

const PACKAGE = "graphile-worker-dispatch-policy";

/** What can be called, or has methods that can, has a heading. */
const hasHeading = ({ isCalled, title }: Item) => isCalled || title in OBJECTS;

/** As GitHub makes them of headings: `fixedClock` comes before `FixedClock`, which gets a number. */
const anchors = new Map<Item, string>();
for (const item of ITEMS.filter(hasHeading)) {
  const anchor = item.title.toLowerCase().replace(/[^\w-]/g, "");
  const taken = [...anchors.keys()].filter(({ title }) => title.toLowerCase() === item.title.toLowerCase());
  anchors.set(item, taken.length === 0 ? anchor : `${anchor}-${taken.length}`);
}

/** The whole page. */
export function apiPage(): string {
  return `# API

This page is generated from the docstrings by \`npm run docs\`. Do not edit it. It has the beginning of each; an editor shows all of it. [Options](options.md) has the options of policies, gates, jobs and presets.

- In examples, \`fetchEndpoint\` is a policy, \`utils\` is what \`makePolicyUtils\` returned, and \`client\` is a connection of pg. A gate stands in \`gates: ({ throttle }) => [ … ]\`. Tests compile and run them.
- A wrong call is an error that names the option, the value and what was expected: of gates, policies and back-offs a \`PolicyDefinitionError\`, of anything else an \`ArgumentError\`. For a policy that nobody declared it is an \`UnknownPolicyError\`. Below stand the other errors.

${SECTIONS.map(sectionText).join("\n\n")}
`;
}

function sectionText({ title, entry, see }: (typeof SECTIONS)[number]): string {
  const its = ITEMS.filter(({ section }) => section === title);
  const types = its.filter((item) => !hasHeading(item));
  return [
    `## ${title}`,
    `From \`${PACKAGE}${entry.slice(1)}\`. More: ${see}.`,
    ...its.filter(hasHeading).map(itemText),
    types.length > 0 && `${its.some(hasHeading) ? "Also" : "It has"} ${types.map(nameOf).join(", ")}.`,
  ]
    .filter(Boolean)
    .join("\n\n");
}

function itemText(item: Item): string {
  const { title, owner, said, signature } = item;
  const [example] = said.examples;
  return [
    `${owner === undefined ? "###" : "####"} \`${title}\``,
    linked(said.blocks[0] ?? "", item),
    item.isCalled && `\`\`\`ts\n${signature}\n\`\`\``,
    throwsText(item),
    example && `\`\`\`ts\n${example}\n\`\`\``,
  ]
    .filter(Boolean)
    .join("\n\n");
}

/** What the page says once, at its top. */
const SAID_ONCE = ["ArgumentError", "PolicyDefinitionError", "UnknownPolicyError"];

function throwsText(item: Item): string {
  const throws = item.said.throws.filter(({ error = "" }) => !SAID_ONCE.includes(error));
  const all = throws.map(({ error, when }) =>
    [error && linked(`{@link ${error}}`, item), linked(when, item)].filter(Boolean).join(" "),
  );
  return all.length === 0 ? "" : `Throws ${all.join("; ")}.`.replace(/\.\.$/, ".");
}

/** A type. */
function nameOf({ title }: Item): string {
  const where = ELSEWHERE[title];
  return where ? `[\`${title}\`](${where})` : `\`${title}\``;
}

const code = (text: string): string => (text.includes("`") ? `\`\` ${text} \`\`` : `\`${text}\``);

/** Links lead to headings of this page. Pages that a docstring names are beside it. */
function linked(text: string, { owner, title }: Item): string {
  const object = OBJECTS[owner ?? title];
  return text
    .replace(/\{@link ([\w.]+)\}/g, (_, name: string) => {
      const [of = "", method] = name.split(".");
      const titles = [`${object}.${name}`, `${OBJECTS[of]}.${method}`, name];
      const found = titles.flatMap((one) => ITEMS.find((item) => item.title === one) ?? [])[0];
      const anchor = found && anchors.get(found);
      return anchor ? `[${code(found.title)}](#${anchor})` : code(found?.title ?? name);
    })
    .replace(/(?<![\w/`[])docs\/(\w[\w-]*\.md)(#[\w-]+)?/g, "[docs/$1]($1$2)");
}
