// docs/api.md: what each entry of the package exports, with signature, meaning, defaults, errors and examples.
import { ELSEWHERE, ITEMS, type Item, OBJECTS, OTHERS, SECTIONS } from "./items.ts";
import type { Member } from "./signature.ts";
import { shown } from "./stated.ts";
import { rows } from "./table.ts";

const PACKAGE = "graphile-worker-dispatch-policy";

const ALL = [...ITEMS, ...OTHERS];

/** As GitHub makes them of headings: `fixedClock` comes before `FixedClock`, which gets a number. */
const anchors = new Map<Item, string>();
for (const item of ALL) {
  const anchor = item.title.toLowerCase().replace(/[^\w-]/g, "");
  const taken = [...anchors.keys()].filter(({ title }) => title.toLowerCase() === item.title.toLowerCase());
  anchors.set(item, taken.length === 0 ? anchor : `${anchor}-${taken.length}`);
}

const linkTo = (item: Item): string => `[\`${item.title}\`](#${anchors.get(item)})`;

/** The whole page. */
export function apiPage(): string {
  return `# API

This page is generated from the docstrings by \`npm run docs\`. Do not edit it. [Options](options.md) has the same options in tables.

${rows(
  ["import from", "for example", "section"],
  SECTIONS.map(({ title, entry }) => [
    `\`${PACKAGE}${entry.slice(1)}\``,
    ITEMS.filter(({ section }) => section === title)
      .slice(0, 3)
      .map(linkTo)
      .join(", "),
    `[${title}](#${title.toLowerCase().replaceAll(" ", "-")})`,
  ]),
)}

- In examples, \`fetchEndpoint\` is a policy, \`utils\` is what \`makePolicyUtils\` returned, and \`client\` is a connection of pg. A gate stands in \`gates: ({ throttle }) => [ … ]\`. Tests compile all of them.
- A call of a wrong form is an error that names the option, the value and what was expected.
- The [glossary](engine.md#one-word-for-each-thing) explains words such as staged job, pass, slot and sweep.

${SECTIONS.map(sectionText).join("\n\n")}

## Other types

Signatures name these types, but the package does not export them.

${OTHERS.map(itemText).join("\n\n")}
`;
}

function sectionText({ title, entry, see }: (typeof SECTIONS)[number]): string {
  const its = ITEMS.filter(({ section }) => section === title);
  const list = rows(
    ["name", "meaning"],
    its.map((item) => [linkTo(item), firstSentence(linked(item.said.blocks[0] ?? "", item))]),
  );
  return [
    `## ${title}`,
    `From \`${PACKAGE}${entry.slice(1)}\`. More: ${see}.`,
    list,
    ...its.map(itemText),
  ].join("\n\n");
}

const firstSentence = (text: string): string => text.split(/(?<=[.!?]) /)[0] as string;

function itemText(item: Item): string {
  const { title, owner, said, signature, types, members } = item;
  return [
    `${owner === undefined ? "###" : "####"} \`${title}\``,
    said.deprecated && `Deprecated: ${linked(said.deprecated, item)}`,
    ...said.blocks.map((block) => linked(block, item)),
    `\`\`\`ts\n${signature}\n\`\`\``,
    typesText(types),
    said.parameters.map(({ name, meaning }) => `- \`${name}\`: ${linked(meaning, item)}`).join("\n"),
    // else the signature says as much
    members.some(isExplained) && members.map((member) => memberText(member, item)).join("\n"),
    throwsText(item),
    ...said.examples.map((example) => `\`\`\`ts\n${example}\n\`\`\``),
  ]
    .filter(Boolean)
    .join("\n\n");
}

const isExplained = ({ said }: Member) => said.blocks.length > 0 || said.deprecated !== undefined;

function typesText(types: readonly string[]): string {
  const links = types.flatMap((name) => {
    const item = ALL.find(({ title }) => title === name);
    if (item) return [linkTo(item)];
    return name in ELSEWHERE ? [`[\`${name}\`](${ELSEWHERE[name]})`] : [];
  });
  return links.length === 0 ? "" : `Types: ${links.join(", ")}`;
}

function throwsText(item: Item): string {
  const { throws } = item.said;
  if (throws.length === 0) return "";
  return rows(
    ["throws", "when"],
    throws.map(({ error, when }) => [error ? linked(`{@link ${error}}`, item) : "", linked(when, item)]),
  );
}

/** An item of a list. What the member says after its first paragraph is indented below it. */
function memberText({ name, optional, type, isMethod, said }: Member, item: Item): string {
  const [first, ...others] = said.blocks;
  const head = isMethod ? code(type) : `\`${name}${optional ? "?" : ""}\`: ${code(type)}`;
  const parts = [
    `${head}.`,
    said.deprecated && `Deprecated: ${linked(said.deprecated, item)}`,
    said.default && `Default: ${linked(shown(said.default), item).replace(/\.?$/, ".")}`,
    first && linked(first, item),
  ];
  const below = [
    ...others.map((block) => linked(block, item)),
    ...said.examples.map((example) => `\`\`\`ts\n${example}\n\`\`\``),
  ];
  const indented = below.map((block) => `\n\n${block.replace(/^(?=.)/gm, "  ")}`).join("");
  return `- ${parts.filter(Boolean).join(" ")}${indented}${indented && "\n"}`;
}

const code = (text: string): string => (text.includes("`") ? `\`\` ${text} \`\`` : `\`${text}\``);

/** Links lead to headings of this page. Pages that a docstring names are beside it. */
function linked(text: string, { owner, title }: Item): string {
  const object = OBJECTS[owner ?? title];
  return text
    .replace(/\{@link ([\w.]+)\}/g, (_, name: string) => {
      const [of = "", method] = name.split(".");
      const titles = [`${object}.${name}`, `${OBJECTS[of]}.${method}`, name];
      const found = titles.flatMap((one) => ALL.find((item) => item.title === one) ?? [])[0];
      return found ? linkTo(found) : code(name);
    })
    .replace(/(?<![\w/`[])docs\/(\w[\w-]*\.md)(#[\w-]+)?/g, "[docs/$1]($1$2)");
}
