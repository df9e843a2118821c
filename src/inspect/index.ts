/** inspect: looks at runs from outside, by their folders alone. A server with a page, and a view for terminals. */

export { openInspectorAside } from "./aside.js";
export {
  type AddPoint,
  addMetrics,
  EventFileWriter,
  exportTensorBoard,
  type TensorBoardExport,
} from "./exports/index.js";
export { findShown, type ShownFolder } from "./run-list.js";
export { type Inspector, type InspectorOptions, openInspector } from "./server.js";
export { type TextOptions, type TextView, viewAsText } from "./view-as-text.js";
