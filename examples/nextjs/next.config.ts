import type { NextConfig } from "next";

// the package reads files that lie beside its code, so it must not be bundled
export default { serverExternalPackages: ["graphile-worker-dispatch-policy"] } satisfies NextConfig;
