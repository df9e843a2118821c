/**
 * safetensors: the file format for tensors, read as untrusted input and written as the reference library does.
 *
 * A file is 8 bytes with the header's length, the header, and the tensors' bytes:
 * `{"__metadata__": {"made by": "…"}, "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}`.
 */

export { loadSafetensors, readWhole, saveSafetensors } from "./files.js";
export type { SafetensorsFile, StoredTensor } from "./format.js";
export { type OpenSafetensors, openSafetensors, type TensorInFile } from "./open-file.js";
export { type ReadOptions, readSafetensors } from "./read.js";
export {
  layOutFile,
  listChunks,
  type MetadataToWrite,
  type TensorDescription,
  type TensorsToWrite,
  writeSafetensors,
} from "./write.js";
