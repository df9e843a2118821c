/** data: what training reads and writes. Data sets and their batches, and weights in safetensors files. */

export {
  type AtomicWriteOptions,
  codeOf,
  fileError,
  isProcessAlive,
  makeFolder,
  removeLeftovers,
  type WriteBytes,
  withFile,
  writeAtomically,
} from "./atomic-write.js";
export {
  type Column,
  type ColumnSource,
  type FlatColumn,
  type LabelRange,
  TensorDataset,
} from "./dataset.js";
export { type Batch, DataLoader, type DataLoaderOptions } from "./loader.js";
export {
  layOut,
  loadSafetensors,
  readSafetensors,
  readWhole,
  type SafetensorsFile,
  type StoredTensor,
  saveSafetensors,
  writeSafetensors,
} from "./safetensors/index.js";
export { type LoadedWeights, loadWeights, saveWeights, storeTensor } from "./weights.js";
