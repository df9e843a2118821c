/** Cases of the convolution family. */

import type { OpCase } from "./op-case.js";

export const convolutionCases: readonly OpCase[] = [];
