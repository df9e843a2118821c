/** The call of each function in test/oracle/layers.json: its operands, and the attributes of a case. */

import { nn, type Tensor } from "holdfast";

type Operands = readonly [Tensor, ...(Tensor | undefined)[]];
type LayerCall = (operands: Operands, attributes: Readonly<Record<string, unknown>>) => Tensor;

const f = nn.functional;

/** A call whose attributes have the type that layers.py writes. A null operand is undefined. */
function call<A>(run: (operands: Operands, attributes: A) => Tensor): LayerCall {
  return run as unknown as LayerCall;
}

export const layerCalls: Readonly<Record<string, LayerCall>> = {
  batchNorm: call<nn.functional.BatchNormFunctionOptions>(([x, mean, variance, weight, bias], options) =>
    f.batchNorm(x, mean ?? null, variance ?? null, weight, bias, options),
  ),
  groupNorm: call<{ groups: number; eps?: number }>(([x, weight, bias], { groups, eps }) =>
    f.groupNorm(x, groups, weight, bias, eps),
  ),
  instanceNorm: call<nn.functional.InstanceNormFunctionOptions>(
    ([x, mean, variance, weight, bias], options) => f.instanceNorm(x, mean, variance, weight, bias, options),
  ),
  localResponseNorm: call<{ size: number } & nn.functional.LocalResponseNormOptions>(
    ([x], { size, ...options }) => f.localResponseNorm(x, size, options),
  ),
};
