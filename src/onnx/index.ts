/** onnx: writes the forward pass of a model as an ONNX file. */

export {
  type ExportOnnxOptions,
  exportOnnx,
  type OnnxExport,
  type OnnxInputs,
  type OnnxPort,
} from "./export.js";
export type { DynamicAxes } from "./sizes.js";
export type { ExportedModel } from "./trace-model.js";
export { type ExportTransformersJsOptions, exportTransformersJs } from "./transformers-js.js";
