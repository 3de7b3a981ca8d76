// The headings of docs/api.md: each export of each entry, and each method that users call.
import ts from "ts59";
import { type Docstring, docstringOf } from "./docstring.ts";
import { declarationOf, type Exported, exportsOf } from "./exports.ts";
import { type Member, membersOf, signatureOf, sourceOf } from "./signature.ts";

/** The entries of package.json's `exports`, by their sources. */
export const ENTRIES: Readonly<Record<string, string>> = {
  ".": "src/index.ts",
  "./testing": "src/testing.ts",
  "./ui": "src/ui/ui.ts",
  "./tasks/dispatch_policy_tick": "tasks/dispatch_policy_tick.ts",
};

/** The sections of the page: each has an entry, or of the main one what is declared in these folders and files of src/. */
export const SECTIONS: readonly { title: string; entry: string; from: RegExp; see: string }[] = [
  {
    title: "To declare policies",
    entry: ".",
    from: /^(policy\/(?!task)|gates\/|duration)/,
    see: "[gates and fairness](gates.md), [retries](retries.md)",
  },
  { title: "To add jobs", entry: ".", from: /^(stage|drivers|db)\//, see: "[adding jobs](adding-jobs.md)" },
  {
    title: "To run workers and utils",
    entry: ".",
    from: /^(host|admit)\/|^settings/,
    see: "[deployment](operating.md#deployment)",
  },
  { title: "To use in tasks", entry: ".", from: /^(run\/|policy\/task)/, see: "[retries](retries.md)" },
  { title: "To operate", entry: ".", from: /^operate\//, see: "[operating](operating.md)" },
  {
    title: "To watch",
    entry: ".",
    from: /^(metrics\/|events)/,
    see: "[events](operating.md#events), [metrics](production.md#metrics)",
  },
  { title: "To catch errors", entry: ".", from: /^errors/, see: "[errors](errors.md)" },
  { title: "To test policies", entry: "./testing", from: /./, see: "[testing](testing.md)" },
  {
    title: "To mount the admin pages",
    entry: "./ui",
    from: /./,
    see: "[admin pages](ui.md)",
  },
  {
    title: "To tick from a task folder",
    entry: "./tasks/dispatch_policy_tick",
    from: /./,
    see: "[modules](production.md#modules-and-typescript-settings)",
  },
];

/** What users call these objects. Their methods have headings with these names. */
export const OBJECTS: Readonly<Record<string, string>> = {
  Operate: "utils",
  PolicyUtils: "utils",
  Policy: "policy",
  DispatchPolicyHelpers: "helpers.dispatchPolicy",
  FixedClock: "clock",
};

/** Types that the package does not export, and that another page explains. */
export const ELSEWHERE: Readonly<Record<string, string>> = {
  ThrottleOptions: "options.md#throttle",
  ConcurrencyOptions: "options.md#concurrency",
  AdaptiveConcurrencyOptions: "options.md#adaptiveconcurrency",
  Gate: "options.md#gates",
  GateOverrides: "options.md#gates",
};

/** One heading: an export, or a method of an object. */
export interface Item {
  /** As users write it. */
  readonly title: string;
  readonly entry: string;
  readonly section: string;
  /** Where it is declared. */
  readonly file: string;
  /** Of a method: the type that has it. */
  readonly owner: string | undefined;
  readonly isCalled: boolean;
  readonly said: Docstring;
  readonly signature: string;
  /** What stands in its list. */
  readonly members: readonly Member[];
}

/** What users call comes before other types. */
function rankOf({ name, node }: Exported): number {
  const isType = ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node);
  return isType && !(name in OBJECTS) ? 1 : 0;
}

/** An export, and after it the methods that need a heading. */
function itemsOf(exported: Exported, entry: string, section: string): readonly Item[] {
  const { name, node, file } = exported;
  const members = [...membersOf(node), ...inherited(exported)];
  const object = OBJECTS[name];
  const methods = object === undefined ? [] : members.filter(isCalledByUsers);
  const title = name === "default" ? "dispatch_policy_tick" : name;
  const own: Item = {
    ...{ title, entry, section, file, owner: undefined, said: docstringOf(node) },
    signature: signatureOf(exported),
    isCalled: ts.isFunctionDeclaration(node),
    members: members.filter((one) => !methods.includes(one)),
  };
  return [
    own,
    ...methods.map((method) => ({
      ...{ title: `${object}.${method.name}`, entry, section, file, owner: name },
      ...{ isCalled: true, members: [] },
      ...{ said: method.said, signature: sourceOf(method) },
    })),
  ];
}

/** The members of the interfaces that the package does not export by themselves: the verbs, by their rooms. */
function inherited({ file, node }: Exported): readonly Member[] {
  if (!ts.isInterfaceDeclaration(node)) return [];
  const names = node.heritageClauses?.flatMap(({ types }) => types.map((type) => type.expression.getText()));
  return (names ?? [])
    .filter((name) => /Verbs$/.test(name))
    .flatMap((name) => declarationOf(file, name) ?? [])
    .flatMap((base) => [...membersOf(base.node), ...inherited(base)]);
}

const isCalledByUsers = ({ isMethod, optional, said }: Member) =>
  said.deprecated === undefined && said.examples.length + said.throws.length > 0 && (isMethod || !optional);

/** All headings, in the order of the page. */
export const ITEMS: readonly Item[] = Object.entries(ENTRIES).flatMap(([entry, file]) =>
  SECTIONS.filter((section) => section.entry === entry).flatMap(({ title, from }) =>
    exportsOf(file)
      .filter((one) => entry !== "." || from.test(one.file.replace(/^src\//, "")))
      .toSorted((one, other) => rankOf(one) - rankOf(other))
      .flatMap((one) => itemsOf(one, entry, title)),
  ),
);
