// In a browser no package is required by its name: OpenTelemetry counts as missing.
export function createRequire(): (name: string) => never {
  return (name) => {
    throw new Error(`${name} is not there`);
  };
}
