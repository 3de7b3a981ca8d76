// SHA-256 for the hash of a definition. The browser's own answers later, and definitions are hashed at once.

export function createHash(algorithm: string) {
  if (algorithm !== "sha256") throw new Error(`createHash: expected "sha256", got "${algorithm}"`);
  let text = "";
  const hash = {
    update(more: string) {
      text += more;
      return hash;
    },
    digest(_encoding: "hex"): string {
      return sha256(new TextEncoder().encode(text));
    },
  };
  return hash;
}

/** The first 32 bits of the fractions of these roots of the first primes. */
const ROUNDS = rootsOf(64, 3);
const START = rootsOf(8, 2);

function rootsOf(count: number, root: number): Uint32Array {
  const primes: number[] = [];
  for (let n = 2; primes.length < count; n++) if (primes.every((prime) => n % prime !== 0)) primes.push(n);
  return Uint32Array.from(primes, (prime) => (prime ** (1 / root) % 1) * 2 ** 32);
}

function sha256(bytes: Uint8Array): string {
  const state = Uint32Array.from(START);
  const padded = new DataView(new ArrayBuffer(Math.ceil((bytes.length + 9) / 64) * 64));
  new Uint8Array(padded.buffer).set(bytes);
  padded.setUint8(bytes.length, 0x80);
  padded.setBigUint64(padded.byteLength - 8, BigInt(bytes.length) * 8n);
  for (let block = 0; block < padded.byteLength; block += 64) digest(state, padded, block);
  return Array.from(state, (word) => word.toString(16).padStart(8, "0")).join("");
}

const turn = (word: number, by: number) => (word >>> by) | (word << (32 - by));

function digest(state: Uint32Array, data: DataView, block: number): void {
  const words = new Uint32Array(64);
  for (let n = 0; n < 16; n++) words[n] = data.getUint32(block + n * 4);
  const at = (n: number) => words[n] as number;
  for (let n = 16; n < 64; n++) {
    const one = turn(at(n - 15), 7) ^ turn(at(n - 15), 18) ^ (at(n - 15) >>> 3);
    const other = turn(at(n - 2), 17) ^ turn(at(n - 2), 19) ^ (at(n - 2) >>> 10);
    words[n] = at(n - 16) + one + at(n - 7) + other;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  for (let n = 0; n < 64; n++) {
    const one =
      h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + (ROUNDS[n] as number) + at(n);
    const other = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + other) | 0];
  }
  for (const [n, word] of [a, b, c, d, e, f, g, h].entries()) state[n] = (state[n] as number) + word;
}
