/** Draws with the probabilities that a tensor has, as methods. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import { standardUniform } from "../../kernels/index.js";
import { draw, drawnDtype, type MultinomialOptions, multinomialOptionNames } from "../random.js";
import type { Tensor } from "../tensor.js";

export const randomMethods = {
  /**
   * 1 with the probability `p`, else 0, in the dtype of the tensor. Default: the probability is the element itself.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 1]).bernoulli().tolist(), zeros([3]).bernoulli(1).tolist()); // → [ 0, 1 ] [ 1, 1, 1 ]
   * cpu.close();
   * ```
   */
  bernoulli(this: Tensor, p?: number): Tensor {
    requireFloats("bernoulli", this);
    if (p !== undefined) requireProbability("bernoulli", p);
    return below(this, p ?? this.detach()).to(this.dtype);
  },
  /**
   * Indices along the last axis, drawn with probabilities in proportion to the elements, as i32. The tensor has one axis or two.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const drawn = tensor([1, 0, 2]).multinomial(2);
   * console.log(drawn.tolist().toString() === "0,2" || drawn.tolist().toString() === "2,0"); // → true
   * cpu.close();
   * ```
   */
  multinomial(this: Tensor, count: number, options: MultinomialOptions = {}): Tensor {
    const { replacement = false } = checkOptions("multinomial", options, multinomialOptionNames);
    requireFloats("multinomial", this);
    const { shape } = this;
    const choices = shape.at(-1) ?? 0;
    const isCount = Number.isInteger(count) && count >= 1 && (replacement || count <= choices);
    if (shape.length < 1 || shape.length > 2 || choices < 1 || !isCount) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `multinomial of ${count} from [${shape.join(", ")}]: pass one axis or two of at least one weight, and ` +
          "a count of at least 1, no larger than the last axis unless it draws with replacement.",
        { numbers: { count } },
      );
    }
    // The weight divided by an exponential number is largest at an index with the probability of its weight.
    const weights = this.detach().to(this.dtype === "f64" ? "f64" : "f32");
    if (replacement) {
      const rows = weights.unsqueeze(-2).expand([...shape.slice(0, -1), count, choices]);
      return rows.div(exponentialOf(rows)).argmax(-1);
    }
    return weights.div(exponentialOf(weights)).topk(count).indices;
  },
};

function exponentialOf({ shape, dtype, device }: Tensor): Tensor {
  const distribution = { kind: "exponential", rate: 1 } as const;
  return draw("multinomial", distribution, shape, { dtype, device });
}

/** True with the probability `p`, a number or a tensor that broadcasts to the shape. */
export function below(like: Tensor, p: Tensor | number): Tensor {
  const dtype = drawnDtype(standardUniform, like.dtype === "f64" ? "f64" : "f32");
  return draw("bernoulli", standardUniform, like.shape, { dtype, device: like.device }).lt(p);
}

export function requireProbability(caller: string, p: number): void {
  if (p >= 0 && p <= 1) return;
  throw new HoldfastError("BAD_ARGUMENT", `${caller}: p is ${p}; pass a probability from 0 to 1.`, {
    numbers: { p },
  });
}

function requireFloats(caller: string, { dtype }: Tensor): void {
  if (dtypes[dtype].kind === "float") return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${caller} takes probabilities of a float dtype, but got ${dtype}. Convert them: x.to("f32").`,
  );
}
