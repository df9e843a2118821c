/** wasm/math: the elementary functions of CPU kernels, on four floats at once. */

export { type VectorMathName, vectorMath, withNeeds } from "./table.js";
export type { VectorFunction } from "./vector-function.js";
