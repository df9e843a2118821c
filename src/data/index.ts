/** data: what comes from and goes to files. Tensors in the safetensors format; data sets and loaders will join them. */

export {
  loadSafetensors,
  readSafetensors,
  type SafetensorsFile,
  type StoredTensor,
  saveSafetensors,
  writeSafetensors,
} from "./safetensors/index.js";
