// PostgreSQL's wire protocol, as far as a connection to a PGlite reads it. A message is its type (one byte), its length
// without the type (four bytes), and its body. Only a connection's first message has no type.

const TYPE_AND_LENGTH = 5;
const LENGTH = 4;
const NOT_WHOLE =
  "This connection to a PGlite takes whole messages of PostgreSQL's protocol, and got a part of one. If a library streams " +
  "data through the connection (copy ... from stdin), use a PostgreSQL server for this test";

/** The type of a message. */
export const typeOf = (message: Buffer): string => String.fromCharCode(message[0] as number);

/**
 * The messages among bytes. pg writes whole messages, and a PGlite answers with whole ones, so none is put together here.
 *
 * @throws {Error} if one is not whole
 */
export function messagesOf(data: Uint8Array): Buffer[] {
  const all = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const messages: Buffer[] = [];
  for (let at = 0; at < all.length; ) {
    const length = all.length < at + TYPE_AND_LENGTH ? 0 : all.readInt32BE(at + 1);
    const end = at + 1 + length;
    if (length < LENGTH || end > all.length) throw new Error(NOT_WHOLE);
    messages.push(all.subarray(at, end));
    at = end;
  }
  return messages;
}

export function message(type: string, body: string | Buffer = ""): Buffer {
  const bytes = Buffer.from(body);
  const head = Buffer.alloc(TYPE_AND_LENGTH);
  head.write(type, "latin1");
  head.writeInt32BE(LENGTH + bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

/** One or several statements without parameters. */
export const query = (text: string): Buffer => message("Q", `${text}\0`);

/** Ends a batch of messages: a server that has met an error ignores all messages before it. */
export const SYNC = message("S");

/** What a server answers to the first message: no password is needed, and it is ready. */
export const WELCOME = Buffer.concat([message("R", Buffer.alloc(4)), message("Z", "I")]);

/** The process id of the sender is 0: nobody's. */
export function notification(channel: string, payload: string): Buffer {
  return message("A", `\0\0\0\0${channel}\0${payload}\0`);
}

/** An error, after which the connection is ready again. */
export function failure(error: { code: string; message: string; hint: string }): Buffer {
  const fields = ["SERROR", "VERROR", `C${error.code}`, `M${error.message}`, `H${error.hint}`];
  return Buffer.concat([message("E", `${fields.join("\0")}\0\0`), message("Z", "I")]);
}

/** An answer without its notifications, which go to whoever listens. */
export interface Answer {
  readonly bytes: Buffer;
  /** Whether a transaction is open now. Undefined: the answer does not say. */
  readonly inTransaction: boolean | undefined;
}

export function readAnswer(data: Uint8Array): Answer {
  const messages = messagesOf(data);
  const ready = messages.findLast((one) => typeOf(one) === "Z");
  return {
    bytes: Buffer.concat(messages.filter((one) => typeOf(one) !== "A")),
    inTransaction: ready && ready[TYPE_AND_LENGTH] !== "I".charCodeAt(0),
  };
}

/** The text of a message that brings statements. Undefined for others. */
export function statementOf(one: Buffer): string | undefined {
  if (typeOf(one) === "Q") return textAt(one, TYPE_AND_LENGTH);
  if (typeOf(one) === "P") return textAt(one, one.indexOf(0, TYPE_AND_LENGTH) + 1); // after the statement's name
  return undefined;
}

const textAt = (one: Buffer, at: number): string => one.toString("utf8", at, one.indexOf(0, at));
