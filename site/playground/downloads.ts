// The files of a PGlite, and the database in which both schemas are set up. The browser keeps them for the next run.

/** Their sizes, which the build writes beside them. */
type Sizes = Readonly<Record<string, number>>;

const FOLDER = new URL("../../../engine/", import.meta.url);
const WASM = "pglite.wasm";
const FILES = "pglite.data";
const DATABASE = "database.tar.gz";

export async function downloads(onProgress: (loaded: number, total: number) => void) {
  const sizes: Sizes = await (await get("sizes.json")).json();
  const total = [WASM, FILES, DATABASE].reduce((sum, name) => sum + (sizes[name] ?? 0), 0);
  let loaded = 0;
  const counted = (response: Response) => {
    const count = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, out) {
        loaded += chunk.byteLength;
        onProgress(loaded, total);
        out.enqueue(chunk);
      },
    });
    return response.body?.pipeThrough(count) ?? null;
  };
  const asWasm = { headers: { "content-type": "application/wasm" } };
  const [pgliteWasmModule, fsBundle, database] = await Promise.all([
    get(WASM).then((response) => WebAssembly.compileStreaming(new Response(counted(response), asWasm))),
    get(FILES).then((response) => new Response(counted(response)).blob()),
    get(DATABASE).then((response) => new Response(counted(response)).arrayBuffer()),
  ]);
  // without its type PGlite would read it as a plain tar file
  return { pgliteWasmModule, fsBundle, loadDataDir: new Blob([database], { type: "application/x-gzip" }) };
}

async function get(name: string): Promise<Response> {
  const response = await fetch(new URL(name, FOLDER));
  if (!response.ok) throw new Error(`${name} could not be loaded: ${response.status} ${response.statusText}`);
  return response;
}
