// What the engine uses of pg. The rest of it, its connections, is not for browsers.
export default {
  escapeIdentifier: (name: string): string => `"${name.replaceAll('"', '""')}"`,
};
