/** random: Philox on the device and on the host, and distributions over its words; one seed gives the same bits everywhere. */

export {
  type Distribution,
  drawIntegers,
  drawValues,
  type Integers,
  standardNormal,
  standardUniform,
  truncationOf,
} from "./distribution.js";
export { keepAll, keepMask, numbersPerCall, scaleOfKept, thresholdOf, uniform } from "./distributions.js";
export { drawHostValues } from "./host-values.js";
export { normal } from "./normal.js";
export { orthogonal, orthogonalShape } from "./orthogonal.js";
export { blocksForRows, orthogonalKernels } from "./orthogonal-kernel.js";
export { orderNumbers, permutation } from "./permutation.js";
export { philox, type Words2, type Words4 } from "./philox.js";
export { blocksForCalls, randomKernels } from "./random-kernel.js";
export { decodeState, encodeState, type RandomState, stateBytes } from "./random-state.js";
export { drawWords, type RandomStream } from "./random-stream.js";
export type { Seed } from "./seed.js";
export {
  drawKernel,
  drawLaunch,
  type ValueDtype,
  valueDtypes,
  valueKernel,
  valueLaunch,
} from "./value-kernel.js";
