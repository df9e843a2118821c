/** data: data sets and their batches, and weights in safetensors files. */

export {
  type AtomicWriteOptions,
  asFileError,
  errorCode,
  fileError,
  isProcessAlive,
  isThere,
  makeFolder,
  removeLeftovers,
  syncFolder,
  type WriteBytes,
  withFile,
  withFileError,
  writeAtomically,
} from "./atomic-write.js";
export {
  type Column,
  type ColumnSource,
  type FlatColumn,
  type LabelRange,
  TensorDataset,
} from "./dataset.js";
export { type Batch, DataLoader, type DataLoaderOptions, type LoaderState } from "./loader.js";
export {
  listChunks,
  loadSafetensors,
  type MetadataToWrite,
  type ReadOptions,
  readSafetensors,
  readWhole,
  type SafetensorsFile,
  type StoredTensor,
  saveSafetensors,
  type TensorsToWrite,
  writeSafetensors,
} from "./safetensors/index.js";
export {
  type LoadedWeights,
  type LoadWeightsOptions,
  loadWeights,
  saveWeights,
  storeTensor,
} from "./weights.js";
