// The page reads none of the package's files.
export const ownFile = (name: string): string => name;
