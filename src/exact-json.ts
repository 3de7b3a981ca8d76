/** What TypeScript does not know of yet: a number's text, when it is read and when it is written. */
export const { parse, rawJSON } = JSON as unknown as {
  parse(
    text: string,
    revive: (name: string, value: unknown, context: { readonly source: string }) => unknown,
  ): unknown;
  rawJSON(text: string): unknown;
};
