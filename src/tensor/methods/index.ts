/** methods: the methods of tensors, one family per file. Importing this file adds them to the class. */

import { defineMethods } from "../define-methods.js";
import { Tensor } from "../tensor.js";
import { activationMethods } from "./activations.js";
import { arithmeticMethods } from "./arithmetic.js";
import { bitwiseMethods } from "./bitwise.js";
import { comparisonMethods } from "./comparisons.js";
import { copyMethods } from "./copies.js";
import { diagonalMethods } from "./diagonals.js";
import { distanceMethods } from "./distances.js";
import { extremeMethods } from "./extremes.js";
import { functionMethods } from "./functions.js";
import { gradientMethods } from "./gradients.js";
import { inPlaceActivationMethods } from "./in-place/activations.js";
import { inPlaceArithmeticMethods } from "./in-place/arithmetic.js";
import { inPlaceElementwiseMethods } from "./in-place/elementwise.js";
import { inPlaceFunctionMethods } from "./in-place/functions.js";
import { inPlaceRandomMethods } from "./in-place/random.js";
import { inPlaceScatteringMethods } from "./in-place/scattering.js";
import { indexingMethods } from "./indexing.js";
import { lifetimeMethods } from "./lifetime.js";
import { linearAlgebraMethods } from "./linear-algebra.js";
import { maskMethods } from "./masks.js";
import { movementMethods } from "./movement.js";
import { productMethods } from "./products.js";
import { propertyMethods } from "./properties.js";
import { quantileMethods } from "./quantiles.js";
import { randomMethods } from "./random.js";
import { readingMethods } from "./reading.js";
import { rearrangingMethods } from "./rearranging.js";
import { reductionMethods } from "./reduction.js";
import { roundingMethods } from "./rounding.js";
import { scanMethods } from "./scans.js";
import { scatteringMethods } from "./scattering.js";
import { selectionMethods } from "./selections.js";
import { shapeMethods } from "./shape.js";
import { slicingMethods } from "./slicing.js";
import { sortingMethods } from "./sorting.js";
import { specialMethods } from "./special.js";
import { splittingMethods } from "./splitting.js";
import { statisticsMethods } from "./statistics.js";
import { trigonometricMethods } from "./trigonometric.js";
import { weightedSumMethods } from "./weighted-sums.js";

/** The methods of all families. */
export type Families = typeof activationMethods &
  typeof arithmeticMethods &
  typeof inPlaceScatteringMethods &
  typeof maskMethods &
  typeof scatteringMethods &
  typeof quantileMethods &
  typeof sortingMethods &
  typeof propertyMethods &
  typeof statisticsMethods &
  typeof scanMethods &
  typeof diagonalMethods &
  typeof splittingMethods &
  typeof rearrangingMethods &
  typeof inPlaceElementwiseMethods &
  typeof trigonometricMethods &
  typeof specialMethods &
  typeof selectionMethods &
  typeof roundingMethods &
  typeof bitwiseMethods &
  typeof comparisonMethods &
  typeof copyMethods &
  typeof distanceMethods &
  typeof extremeMethods &
  typeof functionMethods &
  typeof inPlaceActivationMethods &
  typeof inPlaceArithmeticMethods &
  typeof inPlaceFunctionMethods &
  typeof inPlaceRandomMethods &
  typeof indexingMethods &
  typeof gradientMethods &
  typeof lifetimeMethods &
  typeof linearAlgebraMethods &
  typeof movementMethods &
  typeof slicingMethods &
  typeof productMethods &
  typeof randomMethods &
  typeof readingMethods &
  typeof reductionMethods &
  typeof shapeMethods &
  typeof weightedSumMethods;

declare module "../tensor.js" {
  interface Tensor extends Families {}
}

const families: readonly object[] = [
  activationMethods,
  arithmeticMethods,
  inPlaceScatteringMethods,
  maskMethods,
  scatteringMethods,
  quantileMethods,
  sortingMethods,
  propertyMethods,
  statisticsMethods,
  scanMethods,
  diagonalMethods,
  splittingMethods,
  rearrangingMethods,
  inPlaceElementwiseMethods,
  trigonometricMethods,
  specialMethods,
  selectionMethods,
  roundingMethods,
  bitwiseMethods,
  comparisonMethods,
  copyMethods,
  distanceMethods,
  extremeMethods,
  functionMethods,
  inPlaceActivationMethods,
  inPlaceArithmeticMethods,
  inPlaceFunctionMethods,
  inPlaceRandomMethods,
  indexingMethods,
  gradientMethods,
  lifetimeMethods,
  linearAlgebraMethods,
  movementMethods,
  slicingMethods,
  productMethods,
  randomMethods,
  readingMethods,
  reductionMethods,
  shapeMethods,
  weightedSumMethods,
];

for (const family of families) defineMethods(Tensor, family);
