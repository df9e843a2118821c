/** FunctionContext: the tensors and numbers that a user's function saves for its backward pass. */

import type { Tensor } from "../tensor.js";

/**
 * The values that a function saves in its forward pass for its backward pass. `apply` makes one context for each call.
 *
 * @example
 * ```ts
 * import { autograd, device, type Tensor, tensor } from "holdfast";
 * class Power extends autograd.Function {
 *   static forward(context: autograd.FunctionContext, x: Tensor, exponent: number): Tensor {
 *     context.saveForBackward(x);
 *     context.state["exponent"] = exponent;
 *     return x.pow(exponent);
 *   }
 *   static backward(context: autograd.FunctionContext, gradient: Tensor): (Tensor | null | undefined)[] {
 *     const exponent = Number(context.state["exponent"]);
 *     return [context.savedTensors[0]?.pow(exponent - 1).mul(exponent).mul(gradient), null];
 *   }
 * }
 * const cpu = await device("cpu");
 * const x = tensor([1, 2], { requiresGrad: true });
 * Power.apply(x, 3).sum().backward();
 * console.log(x.grad?.tolist()); // → [ 3, 12 ]
 * cpu.close();
 * ```
 */
export class FunctionContext {
  /** True for each argument of `forward` that needs a gradient. */
  readonly needsInputGrad: readonly boolean[];
  /** Values other than tensors, such as sizes and flags. */
  readonly state: Record<string, unknown> = {};
  #saved: readonly Tensor[] = [];
  #recall: (() => readonly Tensor[]) | undefined;

  constructor(needsInputGrad: readonly boolean[]) {
    this.needsInputGrad = needsInputGrad;
  }

  /**
   * Keeps tensors until backward has used them. Backward rejects a tensor that was overwritten in place in the meantime. If the gradient is
   * differentiated again, gradients flow to the saved tensors that are arguments or results of `forward`.
   *
   * @example
   * ```ts
   * import { autograd, device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const context = new autograd.FunctionContext([true]);
   * context.saveForBackward(tensor([1, 2]));
   * console.log(context.savedTensors.length); // → 1
   * cpu.close();
   * ```
   */
  saveForBackward(...tensors: readonly Tensor[]): void {
    this.#saved = tensors;
  }

  /**
   * The tensors of `saveForBackward`, in its order.
   *
   * @example
   * ```ts
   * import { autograd } from "holdfast";
   * console.log(new autograd.FunctionContext([true]).savedTensors); // → []
   * ```
   */
  get savedTensors(): readonly Tensor[] {
    return this.#recall?.() ?? this.#saved;
  }

  /**
   * Runs backward with the saved tensors of a recorded call.
   *
   * @internal
   */
  withSaved<T>(recall: () => readonly Tensor[], body: () => T): T {
    const outer = this.#recall;
    this.#recall = recall;
    try {
      return body();
    } finally {
      this.#recall = outer;
    }
  }
}
