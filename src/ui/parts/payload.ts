import { parse, rawJSON } from "../../exact-json.ts";

/** Names of fields whose values nobody is to read over somebody's shoulder. */
const SECRET =
  /passw|passphrase|secret|token|credential|authorization|cookie|api_?-?key|private_?-?key|access_?-?key|^cvv|^cvc|^pin$|^iban$|^ssn$/i;

const HIDDEN = "(hidden)";

/** A payload to show: values of fields whose names say that they are secret are hidden, and no number loses a digit. */
export function shownPayload(text: string): string {
  const shown = parse(text, (key, value, { source }) => {
    if (SECRET.test(key) && value !== null) return HIDDEN;
    return typeof value === "number" ? rawJSON(source) : value;
  });
  return JSON.stringify(shown, null, 2);
}
