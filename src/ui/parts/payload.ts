import { parse, rawJSON } from "../../exact-json.ts";

/** Parts of names whose values nobody is to read over somebody's shoulder. Short ones count as whole words: "card" is in "discard". */
const SECRET =
  /passw|passphrase|pwd|secret|token|credential|authorization|cookie|session|signature|jwt|(?:api|private|access)[-_ ]?key|(?:credit|debit|bank)[-_ ]?card|card[-_ ]?(?:no|num)|(?<![a-z])(?:t?otps?|dsns?|cards?|cvv2?|cvc2?|pins?|ibans?|ssn|sig)(?![a-z])/i;

const HIDDEN = "(hidden)";

/** A payload to show, without what names or the form of a text say is secret. No number loses a digit. */
export function shownPayload(text: string): string {
  try {
    return JSON.stringify(masked(text), null, 2);
  } catch {
    return HIDDEN; // it is nested too deeply
  }
}

function masked(text: string): unknown {
  return parse(text, (name, value, { source }) => {
    if (value !== null && SECRET.test(name.replace(/(?<=[a-z\d])(?=[A-Z])/g, "_"))) return HIDDEN;
    if (typeof value === "string") return maskedText(value);
    return typeof value === "number" ? rawJSON(source) : value;
  });
}

const USER_OF_URL = /(?<=:\/\/)[^\s/]*@/g;
/** "token=…", "Cookie: …", and JSON in the midst of a text, also if it was cut off. "userPin: …" has no word of its own. */
const NAMED = new RegExp(
  `((?:${SECRET.source.replace("(?<![a-z])", "")})[\\w.-]{0,40}\\\\*["']?\\s{0,9}[=:]\\s{0,9})` +
    `([[{].*|"(?:[^"\\\\]|\\\\.)*"?|'[^']*'?|\\\\+["'].*?(?:\\\\+["']|$)|[^&;,}\\n"']+)`,
  "gi",
);

function maskedText(text: string): string {
  try {
    if (/^\s*[{["]/.test(text)) return JSON.stringify(masked(text));
  } catch {
    // it only looks like JSON
  }
  return text.replace(USER_OF_URL, `${HIDDEN}@`).replace(NAMED, (_, named) => named + HIDDEN);
}
