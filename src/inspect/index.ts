/** inspect: shows runs, from their folders only. A server with a page, a text view, and exports. */

export {
  type AddPoint,
  addMetrics,
  EventFileWriter,
  exportTensorBoard,
  type TensorBoardExport,
} from "./exports/index.js";
export { openInspectorInThread } from "./inspector-in-thread.js";
export { findShown, type ShownFolder } from "./run-list.js";
export { type Inspector, type InspectorOptions, openInspector } from "./server.js";
export { type TextOptions, type TextView, viewAsText } from "./view-as-text.js";
