// structured-headers names this type of the DOM's, which Node's types lack.
type BufferSource = ArrayBufferView | ArrayBuffer;
