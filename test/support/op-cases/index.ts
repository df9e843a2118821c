/** Cases for every entry of the op table: op-case.ts defines a case, and each family has a file. */

import { linearAlgebra, type Op, opTable } from "../../../src/ops/index.js";
import { testDeviceKind } from "../test-device.js";
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

const computesDense = testDeviceKind === "cpu";

/** Cases of the ops that the device under test computes. */
export const opCases: readonly OpCase[] = [...deviceOpCases, ...(computesDense ? linearAlgebraCases : [])];

/** The entries of the op table that the device under test computes. Each has a case. */
export const testedOps: readonly (readonly [name: string, op: Op])[] = Object.entries(opTable).filter(
  ([name]) => computesDense || !(name in linearAlgebra),
);
