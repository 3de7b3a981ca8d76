import type { Rule } from "../checks/options.ts";
import type { Viewer } from "./create-ui.ts";

/**
 * What `authorize` may return. Partitions beside another role are refused: whoever gives them means that the sender sees these
 * alone, and would show them all.
 */
export const aViewer: Rule = {
  expects:
    '{ name, role } of a "viewer" or "operator", or of a "tenant" with partitions (keys) or where (values) by policy, ' +
    "or a Response, or null",
  accepts(value) {
    const { name, role, partitions, where } = value as Partial<Record<keyof Viewer, unknown>>;
    if (typeof name !== "string" || name.trim() === "") return false;
    if (role === "tenant")
      return (
        (partitions !== undefined || where !== undefined) &&
        (partitions === undefined || areKeys(partitions)) &&
        (where === undefined || areValues(where))
      );
    return (role === "viewer" || role === "operator") && partitions === undefined && where === undefined;
  },
};

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function areKeys(value: unknown): boolean {
  return (
    isObject(value) &&
    Object.values(value).every((keys) => Array.isArray(keys) && keys.every((key) => typeof key === "string"))
  );
}

/** Without a value all partitions of the policy would be theirs. JSON leaves out what is undefined, and makes null of NaN. */
function areValues(value: unknown): boolean {
  const isValue = (one: unknown) =>
    typeof one === "string" || typeof one === "boolean" || Number.isFinite(one);
  return (
    isObject(value) &&
    Object.values(value).every((values) => {
      const given = isObject(values) ? Object.values(values) : [];
      return given.length > 0 && given.every(isValue);
    })
  );
}
