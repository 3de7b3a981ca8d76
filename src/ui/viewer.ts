import type { Rule } from "../checks/options.ts";
import type { Viewer } from "./create-ui.ts";

/**
 * What `authorize` may return. Partitions beside another role are refused: whoever gives them means that the sender sees these
 * alone, and would show them all.
 */
export const aViewer: Rule = {
  expects:
    '{ name, role } with the role "viewer" or "operator", ' +
    'or { name, role: "tenant", partitions } with keys by policy, or a Response, or null',
  accepts(value) {
    const { name, role, partitions } = value as Partial<Record<keyof Viewer, unknown>>;
    if (typeof name !== "string" || name.trim() === "") return false;
    if (role === "tenant") return areKeys(partitions);
    return (role === "viewer" || role === "operator") && partitions === undefined;
  },
};

function areKeys(value: unknown): boolean {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  return Object.values(value).every(
    (keys) => Array.isArray(keys) && keys.every((key) => typeof key === "string"),
  );
}
