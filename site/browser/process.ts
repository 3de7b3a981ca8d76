// No environment, and a Node that is new enough. It is no global, because PGlite would take the browser for Node.
export const process = { env: {}, pid: 1, versions: { node: "24.0.0" } };
