/** Elementwise ops that are one ONNX node. All others are translated from their kernels. */

import type { AttributeValue } from "../model-proto.js";
import type { CallContext, Translation } from "./call-context.js";
import { translateElementwise } from "./expression.js";

function oneNode(type: string, attributes: (at: CallContext) => Record<string, AttributeValue> = () => ({})) {
  const translation: Translation = (at) => at.result(at.node(type, [at.operand(0)], attributes(at)));
  return translation;
}

export const activationTranslations: Readonly<Record<string, Translation>> = {
  relu: oneNode("Relu"),
  gelu: oneNode("Gelu"),
  geluTanh: oneNode("Gelu", () => ({ approximate: { text: "tanh" } })),
  leakyRelu: oneNode("LeakyRelu", (at) => ({ alpha: { float: at.number("negativeSlope") } })),
  softplus: oneNode("Softplus"),
  mish: oneNode("Mish"),
  hardswish: oneNode("HardSwish"),
  softsign: oneNode("Softsign"),
  reciprocal: oneNode("Reciprocal"),
  elu: (at) => {
    const [alpha, scale, inputScale] = [at.number("alpha"), at.number("scale"), at.number("inputScale")];
    if (inputScale !== 1) return translateElementwise(at);
    const x = [at.operand(0)];
    return at.result(
      scale === 1
        ? at.node("Elu", x, { alpha: { float: alpha } })
        : at.node("Selu", x, { alpha: { float: alpha }, gamma: { float: scale } }),
    );
  },
};
