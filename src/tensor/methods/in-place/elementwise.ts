/**
 * The in-place forms of elementwise methods, made from the methods themselves: the result is copied over the tensor. A compiled step fuses
 * the copy with the method's kernel.
 */

import { HoldfastError } from "../../../errors/index.js";
import { dtypes } from "../../../ir/index.js";
import type { Tensor } from "../../tensor.js";
import { bitwiseMethods } from "../bitwise.js";
import { comparisonMethods } from "../comparisons.js";
import { roundingMethods } from "../rounding.js";
import { selectionMethods } from "../selections.js";
import { specialMethods } from "../special.js";
import { trigonometricMethods } from "../trigonometric.js";

/** The in-place form of a method: its result overwrites the tensor, converted to the tensor's dtype. */
export function inPlace<A extends unknown[]>(
  method: (this: Tensor, ...args: A) => Tensor,
): (this: Tensor, ...args: A) => Tensor {
  return function (this: Tensor, ...args: A): Tensor {
    const result = method.apply(this, args);
    const isFloatIntoInteger = dtypes[result.dtype].kind === "float" && dtypes[this.dtype].kind !== "float";
    if (!isFloatIntoInteger) return this.copy_(result);
    throw new HoldfastError(
      "BAD_DTYPE",
      `${result.name} in place: the result is ${result.dtype}, and "${this.name}" holds ${this.dtype}. Convert it first: to("${result.dtype}").`,
      { numbers: { result: result.dtype, target: this.dtype } },
    );
  };
}

/**
 * A method of the same name without the underscore describes each.
 *
 * @example
 * ```ts
 * import { device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([-5, 7]);
 * x.remainder_(3).gt_(0);
 * console.log(x.tolist()); // → [ 1, 1 ]
 * cpu.close();
 * ```
 */
export const inPlaceElementwiseMethods = {
  /** `round` in place. */
  round_: inPlace(roundingMethods.round),
  /** `trunc` in place. */
  trunc_: inPlace(roundingMethods.trunc),
  /** `frac` in place. */
  frac_: inPlace(roundingMethods.frac),
  /** `remainder` in place. */
  remainder_: inPlace(roundingMethods.remainder),
  /** `fmod` in place. */
  fmod_: inPlace(roundingMethods.fmod),
  /** `floorDivide` in place. */
  floorDivide_: inPlace(roundingMethods.floorDivide),
  /** `gcd` in place. */
  gcd_: inPlace(roundingMethods.gcd),
  /** `lcm` in place. */
  lcm_: inPlace(roundingMethods.lcm),
  /** `tan` in place. */
  tan_: inPlace(trigonometricMethods.tan),
  /** `asin` in place. */
  asin_: inPlace(trigonometricMethods.asin),
  /** `acos` in place. */
  acos_: inPlace(trigonometricMethods.acos),
  /** `atan` in place. */
  atan_: inPlace(trigonometricMethods.atan),
  /** `sinh` in place. */
  sinh_: inPlace(trigonometricMethods.sinh),
  /** `cosh` in place. */
  cosh_: inPlace(trigonometricMethods.cosh),
  /** `asinh` in place. */
  asinh_: inPlace(trigonometricMethods.asinh),
  /** `acosh` in place. */
  acosh_: inPlace(trigonometricMethods.acosh),
  /** `atanh` in place. */
  atanh_: inPlace(trigonometricMethods.atanh),
  /** `sinc` in place. */
  sinc_: inPlace(trigonometricMethods.sinc),
  /** `deg2rad` in place. */
  deg2rad_: inPlace(trigonometricMethods.deg2rad),
  /** `rad2deg` in place. */
  rad2deg_: inPlace(trigonometricMethods.rad2deg),
  /** `atan2` in place. */
  atan2_: inPlace(trigonometricMethods.atan2),
  /** `hypot` in place. */
  hypot_: inPlace(trigonometricMethods.hypot),
  /** `exp2` in place. */
  exp2_: inPlace(specialMethods.exp2),
  /** `log2` in place. */
  log2_: inPlace(specialMethods.log2),
  /** `log10` in place. */
  log10_: inPlace(specialMethods.log10),
  /** `erfc` in place. */
  erfc_: inPlace(specialMethods.erfc),
  /** `erfinv` in place. */
  erfinv_: inPlace(specialMethods.erfinv),
  /** `lgamma` in place. */
  lgamma_: inPlace(specialMethods.lgamma),
  /** `digamma` in place. */
  digamma_: inPlace(specialMethods.digamma),
  /** `i0` in place. */
  i0_: inPlace(specialMethods.i0),
  /** `mvlgamma` in place. */
  mvlgamma_: inPlace(specialMethods.mvlgamma),
  /** `logit` in place. */
  logit_: inPlace(specialMethods.logit),
  /** `xlogy` in place. */
  xlogy_: inPlace(specialMethods.xlogy),
  /** `floatPower` in place. */
  floatPower_: inPlace(specialMethods.floatPower),
  /** `ldexp` in place. */
  ldexp_: inPlace(specialMethods.ldexp),
  /** `copysign` in place. */
  copysign_: inPlace(selectionMethods.copysign),
  /** `heaviside` in place. */
  heaviside_: inPlace(selectionMethods.heaviside),
  /** `lerp` in place. */
  lerp_: inPlace(selectionMethods.lerp),
  /** `addcmul` in place. */
  addcmul_: inPlace(selectionMethods.addcmul),
  /** `addcdiv` in place. */
  addcdiv_: inPlace(selectionMethods.addcdiv),
  /** `nanToNum` in place. */
  nanToNum_: inPlace(selectionMethods.nanToNum),
  /** `clampMin` in place. */
  clampMin_: inPlace(selectionMethods.clampMin),
  /** `clampMax` in place. */
  clampMax_: inPlace(selectionMethods.clampMax),
  /** `bitwiseAnd` in place. */
  bitwiseAnd_: inPlace(bitwiseMethods.bitwiseAnd),
  /** `bitwiseOr` in place. */
  bitwiseOr_: inPlace(bitwiseMethods.bitwiseOr),
  /** `bitwiseXor` in place. */
  bitwiseXor_: inPlace(bitwiseMethods.bitwiseXor),
  /** `bitwiseNot` in place. */
  bitwiseNot_: inPlace(bitwiseMethods.bitwiseNot),
  /** `bitwiseLeftShift` in place. */
  bitwiseLeftShift_: inPlace(bitwiseMethods.bitwiseLeftShift),
  /** `bitwiseRightShift` in place. */
  bitwiseRightShift_: inPlace(bitwiseMethods.bitwiseRightShift),
  /** `eq` in place. */
  eq_: inPlace(comparisonMethods.eq),
  /** `ne` in place. */
  ne_: inPlace(comparisonMethods.ne),
  /** `lt` in place. */
  lt_: inPlace(comparisonMethods.lt),
  /** `le` in place. */
  le_: inPlace(comparisonMethods.le),
  /** `gt` in place. */
  gt_: inPlace(comparisonMethods.gt),
  /** `ge` in place. */
  ge_: inPlace(comparisonMethods.ge),
  /** `logicalAnd` in place. */
  logicalAnd_: inPlace(comparisonMethods.logicalAnd),
  /** `logicalOr` in place. */
  logicalOr_: inPlace(comparisonMethods.logicalOr),
  /** `logicalXor` in place. */
  logicalXor_: inPlace(comparisonMethods.logicalXor),
  /** `logicalNot` in place. */
  logicalNot_: inPlace(comparisonMethods.logicalNot),
};
