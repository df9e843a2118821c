/** kernels: what ops lower to. Data types, and the code that the drivers run. */

export { type Dtype, type DtypeKind, dtypeNames, dtypes, type ElementArray } from "./dtypes.js";
export { viewElements } from "./elements.js";
export { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "./half.js";
export { promote, promoteWithScalar } from "./promotion.js";
