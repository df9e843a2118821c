/** Cases for every entry of the op table: op-case.ts defines a case, and each family has a file. */

import { attentionCases } from "./attention.js";
import { convolutionCases } from "./convolution.js";
import { elementwiseCases } from "./elementwise.js";
import { indexingCases } from "./indexing.js";
import { linearAlgebraCases } from "./linear-algebra.js";
import { lossesCases } from "./losses.js";
import { matmulCases } from "./matmul.js";
import { movementCases } from "./movement.js";
import { normalisationCases } from "./normalisation.js";
import type { OpCase } from "./op-case.js";
import { randomCases } from "./random.js";
import { recurrentCases } from "./recurrent.js";
import { reductionCases } from "./reduction.js";
import { sortingCases } from "./sorting.js";
import { specialFunctionCases } from "./special-functions.js";

/** Cases of the ops with kernels for every device. Linear algebra is computed on the host. */
export const deviceOpCases: readonly OpCase[] = [
  ...elementwiseCases,
  ...specialFunctionCases,
  ...reductionCases,
  ...sortingCases,
  ...matmulCases,
  ...movementCases,
  ...indexingCases,
  ...normalisationCases,
  ...convolutionCases,
  ...attentionCases,
  ...lossesCases,
  ...randomCases,
  ...recurrentCases,
];

export const opCases: readonly OpCase[] = [...deviceOpCases, ...linearAlgebraCases];
