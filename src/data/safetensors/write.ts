/**
 * Writes safetensors, byte for byte as the reference library does. Tensors are ordered by width of dtype, the widest first, then by
 * name, without gaps. So every tensor is aligned. The header is padded with spaces to a multiple of 8.
 */

import { HoldfastError } from "../../errors/index.js";
import { dtypeNames } from "../../ir/index.js";
import { alignUp } from "../../units/index.js";
import {
  countLimit,
  dimensionLimit,
  dtypesByFileName,
  headerLimit,
  isUtf8Text,
  lengthBytes,
  metadataName,
  nameLimit,
  type StoredTensor,
  tensorBytes,
  textLimit,
} from "./format.js";
import { quote } from "./rejection.js";

const alignment = 8;

/** The dtypes in file order, each with its name in the file. */
const fileOrder = [...dtypesByFileName].flatMap(([fileName, dtype]) => [
  // Files with 8-bit floats are read as bf16, so that table does not have them.
  ...(dtype === "i8"
    ? ([
        { fileName: "F8_E4M3", dtype: "f8e4m3" },
        { fileName: "F8_E5M2", dtype: "f8e5m2" },
      ] as const)
    : []),
  { fileName, dtype },
]);

/** A list of named tensors, or tensors by name. */
export type TensorsToWrite = Iterable<StoredTensor> | Readonly<Record<string, Omit<StoredTensor, "name">>>;

/** Texts by key. */
export type MetadataToWrite = ReadonlyMap<string, string> | Readonly<Record<string, string>>;

/**
 * Writes tensors and metadata as the bytes of a safetensors file. The order of the tensors does not affect the bytes.
 *
 * @example
 * ```ts
 * import { writeSafetensors } from "holdfast";
 * const scale = { dtype: "u8", shape: [2], bytes: new Uint8Array([1, 2]) } as const;
 * const file = writeSafetensors({ scale }, { "made by": "holdfast" });
 * console.log(new TextDecoder().decode(file.subarray(8, 48))); // → {"__metadata__":{"made by":"holdfast"},"
 * ```
 */
export function writeSafetensors(
  tensors: TensorsToWrite,
  metadata: MetadataToWrite = new Map(),
): Uint8Array<ArrayBuffer> {
  const chunks = listChunks(tensors, metadata);
  const file = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let offset = 0;
  for (const chunk of chunks) {
    file.set(chunk, offset);
    offset += chunk.length;
  }
  return file;
}

/** The chunks of a file in order: the length and the header, then each tensor's bytes. */
export function listChunks(
  tensors: TensorsToWrite,
  metadata: MetadataToWrite = new Map(),
): readonly Uint8Array[] {
  const list = tensorList(tensors);
  for (const tensor of list) checkBytes(tensor);
  const { beginning, sorted } = layOutFile(list, metadata);
  return [beginning, ...sorted.map(({ bytes }) => bytes)];
}

/** A tensor without its bytes. */
export type TensorDescription = Omit<StoredTensor, "bytes" | "stored">;

/** The beginning of a file, and its tensors in the order of their bytes: for writers that don't hold all bytes at once. */
export function layOutFile<Tensor extends TensorDescription>(
  tensors: readonly Tensor[],
  metadata: MetadataToWrite,
): { readonly beginning: Uint8Array; readonly sorted: readonly Tensor[] } {
  const sorted = sortForFile(tensors);
  const texts = metadataEntries(metadata);
  const counts = sorted.reduce((sum, { tensor }) => sum + tensor.shape.length + 2, 0);
  requireWithin(counts, countLimit, "numbers in shapes and data_offsets");
  let textBytes = 0;
  const json = (text: string): string => {
    const quoted = JSON.stringify(text);
    textBytes += Buffer.byteLength(quoted) - '""'.length;
    return quoted;
  };
  const members: string[] = texts.length === 0 ? [] : [metadataMember(texts, json)];
  let offset = 0;
  for (const { tensor, fileName } of sorted) {
    const { name, shape } = tensor;
    const end = offset + (tensorBytes(tensor.dtype, shape) ?? 0);
    members.push(
      `${json(name)}:{"dtype":${json(fileName)},"shape":[${shape}],"data_offsets":[${offset},${end}]}`,
    );
    offset = end;
  }
  const beginning = beginningOf(members);
  requireWithin(textBytes, textLimit, "bytes of names and metadata");
  return { beginning, sorted: sorted.map(({ tensor }) => tensor) };
}

function tensorList(tensors: TensorsToWrite): readonly StoredTensor[] {
  if (isIterable(tensors)) return [...tensors];
  if (isRecord(tensors)) return Object.entries(tensors).map(([name, tensor]) => ({ ...tensor, name }));
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "The tensors to write must be a list of { name, dtype, shape, bytes }, or an object of such records by name.",
  );
}

function metadataEntries(metadata: MetadataToWrite): readonly [string, string][] {
  if (metadata instanceof Map) return [...metadata];
  if (isRecord(metadata) && !isIterable(metadata)) return Object.entries(metadata);
  throw new HoldfastError("BAD_ARGUMENT", "The metadata must be a Map of texts, or an object of texts.");
}

function isIterable(value: unknown): value is Iterable<StoredTensor> {
  return isRecord(value) && Symbol.iterator in value;
}

function isRecord(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

interface Placed<Tensor> {
  readonly tensor: Tensor;
  readonly fileName: string;
}

function sortForFile<Tensor extends TensorDescription>(
  tensors: readonly Tensor[],
): readonly Placed<Tensor>[] {
  const byName = new Map<string, Tensor>();
  for (const tensor of tensors) {
    checkTensor(tensor);
    if (byName.has(tensor.name)) {
      throw badTensor(tensor.name, "is a duplicate. Give each tensor a unique name.");
    }
    byName.set(tensor.name, tensor);
  }
  requireWithin(byName.size, nameLimit, "tensors");
  const names = [...byName.keys()].sort(compareTexts);
  const sorted = names.flatMap((name) => byName.get(name) ?? []);
  return fileOrder.flatMap(({ dtype, fileName }) =>
    sorted.filter((tensor) => tensor.dtype === dtype).map((tensor) => ({ tensor, fileName })),
  );
}

function checkTensor(tensor: TensorDescription): void {
  if (!isRecord(tensor)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `One of the tensors to write is ${String(tensor)}; pass { name, dtype, shape, bytes }.`,
    );
  }
  const { name, dtype, shape } = tensor;
  if (typeof name !== "string") {
    throw new HoldfastError("BAD_ARGUMENT", `A tensor's name is ${String(name)}; pass a text.`);
  }
  if (!dtypeNames.includes(dtype)) {
    throw badTensor(name, `has the dtype ${String(dtype)}. Use one of ${dtypeNames.join(", ")}.`);
  }
  if (!Array.isArray(shape)) throw badTensor(name, "has no shape. Pass a list of sizes.");
  if (name === metadataName) throw badTensor(name, "has the name that the format reserves for metadata.");
  checkText(name, "tensor's name");
  if (shape.length > dimensionLimit) {
    throw badTensor(name, `has ${shape.length} dimensions; the maximum is ${dimensionLimit}.`);
  }
  if (tensorBytes(dtype, shape) === undefined)
    throw badTensor(name, `has [${shape.join(", ")}], which is not a valid shape.`);
}

function checkBytes(tensor: StoredTensor): void {
  checkTensor(tensor);
  const { name, dtype, shape, bytes } = tensor;
  if (!(bytes instanceof Uint8Array)) {
    throw badTensor(
      name,
      "has no bytes. Pass its elements as a Uint8Array: new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength).",
    );
  }
  const size = tensorBytes(dtype, shape);
  if (size === bytes.length) return;
  throw badTensor(name, `has ${bytes.length} bytes, but ${dtype} [${shape.join(", ")}] needs ${size}.`);
}

function badTensor(name: string, what: string): HoldfastError {
  const message = `Tensor ${quote(name)} can't be written: it ${what}`;
  return new HoldfastError("BAD_ARGUMENT", message, { numbers: { name: quote(name) } });
}

function metadataMember(texts: readonly [string, string][], json: (text: string) => string): string {
  requireWithin(texts.length, nameLimit, "texts of metadata");
  const members = texts
    .toSorted(([a], [b]) => compareTexts(a, b))
    .map(([key, value]) => {
      checkText(key, "key of the metadata");
      checkText(value, `value of ${quote(key)} in the metadata`);
      return `${json(key)}:${json(value)}`;
    });
  return `${json(metadataName)}:{${members.join(",")}}`;
}

/** Rejects what the reader rejects. */
function requireWithin(count: number, limit: number, what: string): void {
  if (count <= limit) return;
  const message = `${count} ${what} exceed the maximum of ${limit}. Write several files.`;
  throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { count, limit } });
}

function checkText(text: string, what: string): void {
  if (typeof text !== "string") {
    throw new HoldfastError("BAD_ARGUMENT", `A ${what} is ${String(text)}; it must be a text.`);
  }
  if (isUtf8Text(text)) return;
  const message = `A ${what} must be valid UTF-8; ${quote(text)} has an unpaired surrogate.`;
  throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { text: quote(text) } });
}

/** The length and the header, padded so that the data is aligned. */
function beginningOf(members: readonly string[]): Uint8Array {
  // Joined as text: an object would reorder names like "10" and treat "__proto__" specially.
  const json = new TextEncoder().encode(`{${members.join(",")}}`);
  const length = alignUp(json.length, alignment);
  if (length > headerLimit) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The header would take ${length} bytes; the format allows ${headerLimit}. Write fewer tensors, shorter names or less metadata.`,
      { numbers: { length, headerLimit } },
    );
  }
  const header = new Uint8Array(lengthBytes + length).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  header.set(json, lengthBytes);
  return header;
}

/** Compares by UTF-8 bytes, that is by code points; `<` would compare UTF-16. */
function compareTexts(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
