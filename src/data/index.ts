/** data: data sets, samplers and batches, and weights in safetensors files. */

export { AsyncDataLoader, type AsyncDataLoaderOptions, type AsyncLoaderState } from "./async-loader.js";
export {
  type AtomicWriteOptions,
  asFileError,
  errorCode,
  fileError,
  isProcessAlive,
  isThere,
  makeFolder,
  type PreparedWrite,
  prepareWrite,
  removeLeftovers,
  syncFolder,
  type WriteBytes,
  withFile,
  withFileError,
  writeAtomically,
} from "./atomic-write.js";
export {
  type Collated,
  type CollateOptions,
  defaultCollate,
  defaultConvert,
  type HostArray,
} from "./collate.js";
export { type CsvOptions, type CsvTable, parseCsv } from "./csv.js";
export {
  type Column,
  type ColumnSource,
  type FlatColumn,
  type LabelRange,
  TensorDataset,
  type TensorSample,
} from "./dataset.js";
export { ImageFolder, type ImageFolderOptions, type ImageSample } from "./image-folder.js";
export {
  decodeImage,
  type ImageArray,
  type ImageMode,
  type ImageOptions,
  readImage,
} from "./images/index.js";
export { type Batch, DataLoader, type DataLoaderOptions, type LoaderState } from "./loader.js";
export {
  ChainDataset,
  ConcatDataset,
  Dataset,
  IterableDataset,
  type RandomSplitOptions,
  randomSplit,
  Subset,
} from "./map-dataset.js";
export { readNpy, writeNpy } from "./npy.js";
export { type ReadNpzOptions, readNpz, type WriteNpzOptions, writeNpz } from "./npz.js";
export {
  type ParquetColumn,
  type ParquetNumbers,
  type ParquetReadLimits,
  readParquetColumns,
} from "./parquet/index.js";
export { type ParquetTable, type ReadParquetOptions, readParquet } from "./parquet-table.js";
export { badData, quote, wrapFault } from "./rejection.js";
export {
  layOutFile,
  listChunks,
  loadSafetensors,
  type MetadataToWrite,
  type OpenSafetensors,
  openSafetensors,
  type ReadOptions,
  readSafetensors,
  readWhole,
  type SafetensorsFile,
  type StoredTensor,
  saveSafetensors,
  type TensorDescription,
  type TensorInFile,
  type TensorsToWrite,
  writeSafetensors,
} from "./safetensors/index.js";
export type { SampleContext, SampleRandom } from "./sample-context.js";
export {
  BatchSampler,
  type BatchSamplerOptions,
  RandomSampler,
  type RandomSamplerOptions,
  type SampleCount,
  Sampler,
  SequentialSampler,
  SubsetRandomSampler,
  WeightedRandomSampler,
  type WeightedSamplerOptions,
} from "./samplers.js";
export type { ImageSize, RandomCropOptions, Transform } from "./transforms.js";
export * as transforms from "./transforms.js";
export {
  type LoadedWeights,
  type LoadWeightsOptions,
  loadWeights,
  saveWeights,
  storeTensor,
} from "./weights.js";
export type { WorkerSource } from "./worker-source.js";
